"""What stream capture promises. Run by test_graphs.py."""

from __future__ import annotations

import ctypes
import threading
from random import Random

from driver import cuda, out, refused
from graphs import (
    GLOBAL,
    HOST_FUNCTION,
    RELAXED,
    THREAD_LOCAL,
    Pointer,
    begin,
    captured,
    device_words,
    edges,
    end,
    event,
    handles,
    instantiate,
    nodes,
    run,
    status,
    stream,
    wait,
    words,
    write,
)

ACTIVE, INVALIDATED = 1, 2


def check_what_is_captured_runs_only_when_it_is_launched():
    on, memory = stream(), words()
    with captured(on) as graph:
        assert status(on) == ACTIVE
        write(on, memory, 0, 5)
        write(on, memory, 1, 6)
    assert status(on) == 0 and not memory.any()
    first, second = nodes(graph)
    assert edges(graph) == {(first, second)}
    executable = instantiate(graph)
    for _ in range(3):
        memory[:] = 0
        run(executable, on)
        assert memory[:3].tolist() == [5, 6, 0]


def check_streams_join_a_capture_by_events_and_leave_it_when_it_ends():
    on, other, memory = stream(), stream(), words()
    forked, joined = event(), event()
    with captured(on) as graph:
        write(on, memory, 0, 1)
        cuda.cuEventRecord(forked, on)
        cuda.cuStreamWaitEvent(other, forked, 0)
        assert status(other) == ACTIVE
        write(other, memory, 1, 2)
        write(on, memory, 2, 3)
        cuda.cuEventRecord(joined, other)
        cuda.cuStreamWaitEvent(on, joined, 0)
        write(on, memory, 3, 4)
    root, left, right, last = nodes(graph)
    assert edges(graph) == {(root, left), (root, right), (left, last), (right, last)}
    assert status(other) == 0
    write(other, memory, 7, 9)
    cuda.cuStreamSynchronize(other)
    assert memory.tolist() == [0, 0, 0, 0, 0, 0, 0, 9]
    run(instantiate(graph), on)
    assert memory.tolist() == [1, 2, 3, 4, 0, 0, 0, 9]


def check_a_fork_that_was_not_joined_is_an_error():
    on, other, forked = stream(), stream(), event()
    begin(on)
    cuda.cuEventRecord(forked, on)
    cuda.cuStreamWaitEvent(other, forked, 0)
    write(other, words(), 0, 1)
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
    assert status(on) == status(other) == 0
    # A stream that captured nothing of its own has nothing to join, and one that was joined may be destroyed.
    memory, joined = words(), event()
    with captured(on) as graph:
        cuda.cuEventRecord(forked, on)
        cuda.cuStreamWaitEvent(other, forked, 0)
        third = stream()
        cuda.cuStreamWaitEvent(third, forked, 0)
        write(third, memory, 0, 1)
        cuda.cuEventRecord(joined, third)
        cuda.cuStreamWaitEvent(on, joined, 0)
        cuda.cuStreamDestroy_v2(third)
    assert len(nodes(graph)) == 1
    begin(on)
    cuda.cuEventRecord(forked, on)
    third = stream()
    cuda.cuStreamWaitEvent(third, forked, 0)
    write(third, memory, 0, 1)
    cuda.cuStreamDestroy_v2(third)
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"


def check_captures_do_not_merge_and_do_not_wait_for_what_is_outside():
    one, two, outside, inside = stream(), stream(), event(), event()
    cuda.cuEventRecord(outside, two)
    begin(one)
    assert refused(cuda.cuStreamWaitEvent, one, outside, 0).name == "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
    assert status(one) == INVALIDATED
    assert refused(write, one, words(), 0, 1).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert refused(end, one).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    begin(one)
    begin(two)
    cuda.cuEventRecord(inside, one)
    assert refused(cuda.cuStreamWaitEvent, two, inside, 0).name == "CUDA_ERROR_STREAM_CAPTURE_MERGE"
    assert [refused(end, each).name for each in (one, two)] == ["CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"] * 2


def check_waiting_for_what_is_captured_ends_the_capture():
    on, inside = stream(), event()
    for call in (cuda.cuStreamSynchronize, cuda.cuStreamQuery):
        begin(on)
        assert refused(call, on).name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    for call in (cuda.cuEventSynchronize, cuda.cuEventQuery):
        begin(on)
        cuda.cuEventRecord(inside, on)
        assert refused(call, inside).name == "CUDA_ERROR_CAPTURED_EVENT"
        assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    begin(on)
    cuda.cuEventRecord(inside, on)
    elapsed = ctypes.c_float()
    assert refused(cuda.cuEventElapsedTime_v2, ctypes.byref(elapsed), inside, inside).name == (
        "CUDA_ERROR_CAPTURED_EVENT"
    )
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    begin(on)
    callback = ctypes.CFUNCTYPE(None, Pointer, ctypes.c_int, Pointer)(lambda *_: None)
    assert refused(cuda.cuStreamAddCallback, on, callback, None, 0).name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    begin(on)
    assert refused(cuda.cuCtxSynchronize).name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    cuda.cuEventRecord(inside, on)  # recorded outside again: an ordinary event
    cuda.cuEventSynchronize(inside)


def check_the_legacy_stream_is_unusable_beside_a_captured_blocking_one():
    blocking, free, memory = stream(0), stream(1), words()
    assert refused(begin, None).name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    begin(free, RELAXED)
    write(None, memory, 0, 1)
    cuda.cuStreamSynchronize(None)
    end(free)
    begin(blocking, RELAXED)
    assert refused(status, None).name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
    assert status(blocking) == ACTIVE
    assert refused(write, None, memory, 1, 1).name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
    assert refused(end, blocking).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert memory.tolist()[:2] == [1, 0]
    block = device_words().ctypes.data
    hook = ctypes.CFUNCTYPE(None, Pointer, ctypes.c_int, Pointer)(lambda on, status, data: None)
    for call in (
        lambda: cuda.cuMemcpyDtoDAsync_v2(ctypes.c_uint64(block), ctypes.c_uint64(block + 4), ctypes.c_size_t(4), None),
        lambda: cuda.cuMemsetD8Async(ctypes.c_uint64(block), 0, ctypes.c_size_t(4), None),
        lambda: cuda.cuStreamAddCallback(None, hook, None, 0),
    ):
        begin(blocking, RELAXED)
        assert refused(call).name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        refused(end, blocking)


def allocation() -> None:
    cuda.cuMemFree_v2(out(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(64)))


def in_thread(call):
    """What the call gives in a thread of its own, or the exception."""
    result = []

    def body():
        context = Pointer()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxSetCurrent(context)
        try:
            result.append(call())
        except Exception as error:
            result.append(error)
        finally:
            cuda.cuDevicePrimaryCtxRelease_v2(0)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(30)
    return result[0]


def exchange(mode: int) -> int:
    value = ctypes.c_int(mode)
    cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(value))
    return value.value


def check_unsafe_calls_are_forbidden_as_far_as_the_mode_says():
    on = stream()
    # mode -> (here, in another thread)
    for mode, here, there in ((GLOBAL, True, True), (THREAD_LOCAL, True, False), (RELAXED, False, False)):
        for forbidden, call in ((here, allocation), (there, lambda: in_thread(allocation))):
            begin(on, mode)
            try:
                failure = call()
            except Exception as error:
                failure = error
            assert (getattr(failure, "name", None) == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED") is forbidden, mode
            if forbidden:
                assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
            else:
                end(on)
    begin(on, GLOBAL)
    assert exchange(RELAXED) == GLOBAL
    allocation()
    assert exchange(GLOBAL) == RELAXED
    end(on)


def check_a_capture_ends_where_it_began():
    on, other, forked = stream(), stream(), event()
    assert refused(end, on).name == "CUDA_ERROR_ILLEGAL_STATE"
    begin(on)
    assert refused(begin, on).name == "CUDA_ERROR_ILLEGAL_STATE"
    assert in_thread(lambda: end(on)).name == "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
    assert status(on) == ACTIVE
    cuda.cuEventRecord(forked, on)
    cuda.cuStreamWaitEvent(other, forked, 0)
    assert refused(end, other).name == "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"
    assert refused(end, on).name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    begin(on, RELAXED)
    assert isinstance(in_thread(lambda: end(on)), Pointer)


def info(on: Pointer):
    """id, graph and dependencies of a stream's capture."""
    state, number, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    graph, found = Pointer(), ctypes.POINTER(Pointer)()
    places = (state, number, graph, found)
    cuda.cuStreamGetCaptureInfo_v3(on, *map(ctypes.byref, places), None, ctypes.byref(count))
    return number.value, graph, [found[i] for i in range(count.value)]


def check_dependencies_of_a_capture_can_be_seen_and_set():
    on, memory = stream(), words()
    begin(on)
    write(on, memory, 0, 1)
    number, graph, after = info(on)
    assert number and after == nodes(graph)
    write(on, memory, 1, 1)
    assert info(on)[0] == number
    first, second = nodes(graph)
    set_them = 1
    cuda.cuStreamUpdateCaptureDependencies_v2(on, handles(Pointer(first)), None, ctypes.c_size_t(1), set_them)
    write(on, memory, 2, 1)
    cuda.cuStreamUpdateCaptureDependencies_v2(on, handles(Pointer(second)), None, ctypes.c_size_t(1), 0)
    write(on, memory, 3, 1)
    assert end(on).value == graph.value
    third, fourth = nodes(graph)[2:]
    assert edges(graph) == {(first, second), (first, third), (third, fourth), (second, fourth)}
    assert refused(info_update, on).name == "CUDA_ERROR_ILLEGAL_STATE"


def info_update(on: Pointer) -> None:
    cuda.cuStreamUpdateCaptureDependencies_v2(on, None, None, ctypes.c_size_t(0), 0)


def check_a_capture_can_go_on_in_a_graph_that_there_is():
    on, memory = stream(), words()
    with captured(on) as graph:
        write(on, memory, 0, 1)
    (first,) = nodes(graph)
    cuda.cuStreamBeginCaptureToGraph(on, graph, handles(Pointer(first)), None, ctypes.c_size_t(1), RELAXED)
    assert refused(instantiate, graph).name == "CUDA_ERROR_INVALID_VALUE"
    write(on, memory, 1, 2)
    assert end(on).value == graph.value
    assert edges(graph) == {(first, nodes(graph)[1])}
    run(instantiate(graph), on)
    assert memory.tolist()[:2] == [1, 2]


def check_external_events_are_nodes():
    on, other, memory, outside = stream(), stream(), words(), event()
    with captured(on) as graph:
        wait(on, memory, 5, 1)
        write(on, memory, 0, 1)
        cuda.cuEventRecordWithFlags(outside, on, 1)
    with captured(other) as waits:
        cuda.cuStreamWaitEvent(other, outside, 1)
        write(other, memory, 1, 2)
    first, second, not_ready = instantiate(graph), instantiate(waits), 600
    run(second, other)  # nothing was recorded yet
    for _ in range(2):
        memory[:] = 0
        # A launch is a record from then on, whenever its nodes run.
        cuda.cuGraphLaunch(first, on)
        cuda.cuGraphLaunch(second, other)
        assert [cuda.raw.cuEventQuery(outside), cuda.raw.cuStreamQuery(other)] == [not_ready] * 2
        memory[5] = 1
        cuda.cuStreamSynchronize(other)
        assert memory.tolist()[:2] == [1, 2]
        cuda.cuEventSynchronize(outside)
        cuda.cuStreamSynchronize(on)


def check_a_graph_may_wait_for_what_it_records():
    on, memory, mark = stream(), words(), event()
    with captured(on) as graph:
        write(on, memory, 0, 1)
        cuda.cuEventRecordWithFlags(mark, on, 1)
        cuda.cuStreamWaitEvent(on, mark, 1)
        write(on, memory, 1, 1)
    executable = instantiate(graph)
    for _ in range(2):
        run(executable, on)
    assert memory.tolist()[:2] == [1, 1]


def check_a_context_that_ends_ends_its_captures():
    on = stream()
    begin(on)
    write(on, words(), 0, 1)
    cuda.cuDevicePrimaryCtxReset_v2(0)
    context = out(Pointer, cuda.cuDevicePrimaryCtxRetain, 0)
    cuda.cuCtxSetCurrent(context)
    allocation()  # nothing is captured, so nothing forbids it


def check_a_launch_in_a_capture_is_a_child_graph():
    on, memory = stream(), words()
    with captured(on) as inner:
        write(on, memory, 0, 1)
        write(on, memory, 1, 2)
    executable = instantiate(inner)
    with captured(on) as outer:
        cuda.cuGraphLaunch(executable, on)
        write(on, memory, 0, 3)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(inner)
    run(instantiate(outer), on)
    assert memory.tolist()[:2] == [3, 2]


def check_random_captures_order_what_their_calls_order():
    random, ran = Random(7), []
    hook = HOST_FUNCTION(lambda which: ran.append(which))
    streams, marks = [stream() for _ in range(4)], [event() for _ in range(5)]
    for _ in range(25):
        # What each node comes after, by the rules: before a stream's next node lies all that its last one lies after,
        # and what the events that it waited for were recorded after.
        before: dict[int, set[int]] = {}
        tips: dict[int, set[int]] = {0: set()}
        recorded: dict[int, set[int]] = {}
        begin(streams[0], RELAXED)
        for _ in range(random.randrange(5, 40)):
            at, mark = random.choice(list(tips)), random.randrange(len(marks))
            what = random.randrange(4)
            if what < 2:
                node = len(before) + 1
                cuda.cuLaunchHostFunc(streams[at], hook, Pointer(node))
                before[node] = tips[at]
                tips[at] = tips[at] | {node}
            elif what == 2:
                cuda.cuEventRecord(marks[mark], streams[at])
                recorded[mark] = tips[at]
            elif mark in recorded:
                at = random.randrange(len(streams))
                cuda.cuStreamWaitEvent(streams[at], marks[mark], 0)
                tips[at] = tips.get(at, set()) | recorded[mark]
        for at in tips:
            if at:
                cuda.cuEventRecord(marks[0], streams[at])
                cuda.cuStreamWaitEvent(streams[0], marks[0], 0)
        graph = end(streams[0])
        made = {handle: i + 1 for i, handle in enumerate(nodes(graph))}
        found: dict[int, set[int]] = {node: set() for node in before}
        for source, target in sorted((made[a], made[b]) for a, b in edges(graph)):
            found[target] |= {source}
        for node in found:  # nodes come in the order of calls, so that those before are complete
            found[node] |= set().union(*(found[each] for each in found[node]))
        assert found == before
        ran.clear()
        run(instantiate(graph), streams[0])
        assert sorted(ran) == sorted(before)
        place = {node: i for i, node in enumerate(ran)}
        assert all(place[a] < place[b] for b in before for a in before[b])
