"""The files, tables and pictures that are made of a profile."""

import itertools
import os
from collections import Counter

import pytest
from profile_tools import NO_PERFETTO, C, buffer, events, of, packets, two_devices
from third_party.mini import MiniComputeQueue

import hcq
from hcq.profiling import files

# Files


def test_json_names_processes_and_threads_with_ids_of_their_own(tmp_path):
    p = two_devices(tmp_path / "t.json")
    found = events(p.path)
    names = {(e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in found if e["name"].endswith("_name")}
    processes = {name: pid for (what, pid, _), name in names.items() if what == "process_name"}
    assert {"CLANG", "CLANG:1"} <= processes.keys()
    threads = [(pid, tid, name) for (what, pid, tid), name in names.items() if what == "thread_name"]
    ids = [tid for _, tid, _ in threads]
    assert len(set(ids)) == len(ids) and not set(ids) & set(processes.values())
    for device in ("CLANG", "CLANG:1"):
        assert {"COMPUTE", "DMA"} <= {name for pid, _, name in threads if pid == processes[device]}
    slices = [e for e in found if e["ph"] == "X"]
    assert all(e["dur"] > 0 for e in slices) and {(e["pid"], e["tid"]) for e in slices} <= {t[:2] for t in threads}
    kernel = next(e for e in slices if e["name"] == "two")
    assert kernel["pid"] == processes["CLANG:1"] and kernel["cat"] == "kernel"
    assert [e for e in found if e["ph"] == "C" and e["pid"] == processes["CLANG"]]


class Moved(MiniComputeQueue):
    """A queue whose words the driver moves away at bind."""

    def _bind(self, dev):
        self.moved, self.q = self.q, []

    def _patch(self, offset, words):
        self.moved[offset : offset + len(words)] = words

    def _submit(self, dev):
        dev.worker(self.lane_name).todo.put(list(self.q if self.binded_device is None else self.moved))


def test_bound_queues_whose_words_the_driver_moved_are_timed_as_a_whole(monkeypatch):
    dev = hcq.Device["SLOW"]
    monkeypatch.setattr(dev, "hw_compute_queue_t", Moved)
    a = buffer("SLOW", 4)
    nap = dev.program("nap", 'def nap(launch, x: "i32*"):\n    import time\n    time.sleep(0.002)\n    x[0] += 1\n')
    kernargs = nap.fill_kernargs([a._buf])
    one = dev.hw_compute_queue_t().exec(nap, kernargs, (2, 1, 1)).bind(dev)
    three = dev.hw_compute_queue_t().exec(nap, kernargs).exec(nap, kernargs).exec(nap, kernargs).bind(dev)
    gate = dev.signal_t()
    none = dev.hw_compute_queue_t().signal(gate, 1).bind(dev)
    one.submit(dev)
    with hcq.profile() as p:
        for queue in (one, three, none, one):
            queue.submit(dev)
        dev.synchronize()
    assert [span.name for span in of(p, "kernel")] == ["nap", "bound queue of 3 commands", "nap"]
    first, whole, last = of(p, "kernel")
    assert (first.groups, first.end - first.start >= 4e6, whole.end - whole.start >= 6e6) == (2, True, True)
    assert first.end <= whole.start and whole.end <= last.start
    assert a.numpy()[0] == 9


def test_json_flows_are_bound_to_their_slices(tmp_path):
    p = two_devices(tmp_path / "t.json")
    found = events(p.path)
    slices = [e for e in found if e["ph"] == "X"]

    def at(flow):
        inside = [
            e
            for e in slices
            if (e["pid"], e["tid"]) == (flow["pid"], flow["tid"]) and e["ts"] <= flow["ts"] <= e["ts"] + e["dur"]
        ]
        return {e["name"] for e in inside}

    starts = {e["id"]: at(e) for e in found if e["ph"] == "s"}
    ends = {e["id"]: at(e) for e in found if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == len(p.flows)
    assert all(starts.values()) and all(ends.values())
    assert any("CLANG -> CLANG:1" in starts[i] and "two" in ends[i] for i in starts)


def test_protobuf_reads_back_with_perfettos_own_classes(tmp_path):
    pytest.importorskip("perfetto", reason=NO_PERFETTO)
    p = two_devices(tmp_path / "t.pftrace")
    assert p.path.endswith(".pftrace")
    pb2, found = packets(p.path)
    tracks = {q.track_descriptor.uuid: q.track_descriptor for q in found if q.HasField("track_descriptor")}
    assert len(tracks) == sum(q.HasField("track_descriptor") for q in found)
    processes = {t.process.process_name: t.process.pid for t in tracks.values() if t.HasField("process")}
    assert {"CLANG", "CLANG:1"} <= processes.keys()
    threads = {u: t.thread for u, t in tracks.items() if t.HasField("thread")}
    assert len({t.tid for t in threads.values()}) == len(threads)
    open_slices, names, outgoing, incoming = {}, Counter(), {}, {}
    for q in found:
        if not q.HasField("track_event"):
            continue
        event = q.track_event
        if event.type == pb2.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid in threads
            open_slices.setdefault(event.track_uuid, []).append(q.timestamp)
            names[event.name] += 1
            for flow in event.flow_ids:
                outgoing[flow] = event.name
            for flow in event.terminating_flow_ids:
                incoming[flow] = event.name
        elif event.type == pb2.TrackEvent.TYPE_SLICE_END:
            assert open_slices[event.track_uuid].pop() < q.timestamp
    assert not any(open_slices.values())
    assert sum(names.values()) == len(p.spans) and names["one"] == 2 and names["CLANG -> CLANG:1"] == 1
    assert outgoing.keys() == incoming.keys() and len(outgoing) == len(p.flows)
    assert ("CLANG -> CLANG:1", "two") in {(outgoing[i], incoming[i]) for i in outgoing}
    counters = [q for q in found if q.track_event.type == pb2.TrackEvent.TYPE_COUNTER]
    assert counters and all(tracks[q.track_event.track_uuid].HasField("counter") for q in counters)


def test_without_perfetto_a_trace_is_json_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "has_perfetto", lambda: False)
    with pytest.warns(UserWarning, match=r"hcq\[perfetto\].*JSON"):
        p = two_devices(tmp_path / "t.pftrace")
    assert p.path == str(tmp_path / "t.json") and os.listdir(tmp_path) == ["t.json"]
    assert any(event["name"] == "two" for event in events(p.path))


def test_a_trace_that_cannot_be_written_leaves_nothing_and_raises(tmp_path, clang):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        hcq.profile(tmp_path / "nowhere" / "t.json")
    blocked = tmp_path / "t.json"
    blocked.mkdir()
    with pytest.raises(OSError):
        two_devices(blocked)
    assert os.listdir(tmp_path) == ["t.json"]


def test_spans_that_overlap_are_drawn_on_rows_of_their_own(tmp_path):
    from hcq.profiling.layout import arrange

    p = two_devices()
    spans = list(p.spans)
    kernel = next(span for span in spans if span.name == "two")
    p._recorded.spans.append(kernel._replace(name="beside"))
    for process in arrange(p):
        for thread in process.threads:
            if process.name.startswith("CLANG"):
                drawn = [p.spans[index] for index in thread.spans]
                assert all(a.end <= b.start for a, b in itertools.pairwise(drawn))
    names = [thread.name for process in arrange(p) for thread in process.threads]
    assert "COMPUTE 2" in names


# Tables and pictures


def test_the_table_sums_by_kernel_and_knows_what_it_is_told(clang):
    a, one, two = buffer(), clang.program("one", C), clang.program("spin", C)
    with hcq.profile() as p:
        for _ in range(3):
            one(a)
        two(a, vals=(200000,))
        a.copyin(bytes(4096))
    table = p.estimate("spin", flops=1e6, nbytes=2e6).table()
    rows = {row.kernel: row for row in table}
    assert rows["one"].calls == 3 and rows["one"].gb_s is None and rows["one"].gflop_s is None
    assert rows["one"].total == pytest.approx(3 * rows["one"].mean)
    assert rows["spin"].gflop_s == pytest.approx(1e6 / rows["spin"].total / 1e9)
    assert rows["spin"].gb_s == pytest.approx(2 * rows["spin"].gflop_s)
    assert rows["CPU -> CLANG"].gb_s == pytest.approx(4096 / rows["CPU -> CLANG"].total / 1e9)
    assert sum(row.share for row in table) == pytest.approx(1)
    assert table[0].total == max(row.total for row in table)
    lines = str(table).splitlines()
    assert lines[0].split() == ["kernel", "device", "calls", "total", "ms", "mean", "us", "GB/s", "GFLOP/s", "share"]
    assert len(lines) == 2 + len(table)


def test_an_empty_profile_has_an_empty_table_trace_and_picture(tmp_path):
    with hcq.profile() as p:
        pass
    assert p.table() == () and str(p.table())
    assert p.save(tmp_path / "t.json") and p.plot(tmp_path / "t.svg")


def test_the_picture_is_an_svg_with_a_box_for_each_span(tmp_path):
    from xml.etree import ElementTree

    p = two_devices()
    path = p.plot(tmp_path / "t.svg")
    tree = ElementTree.parse(path)
    titles = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert any("CLANG -> CLANG:1" in text or "spans" in text for text in titles)
    assert any(text.text == "CLANG:1 DMA" for text in tree.iter("{http://www.w3.org/2000/svg}text"))
    with pytest.raises(ValueError, match=r"\.svg"):
        p.plot(tmp_path / "t.png")
