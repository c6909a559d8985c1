"""hcq.capture: recording what a thread submits instead of running it.

What does not live here: what becomes of it (graph, plan), and how we are told (hcq.runtime.watch).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.errors import LaunchError
from hcq.graph import packed
from hcq.graph.nodes import EVERYTHING, Copy, HostCopy, Launch, Node, Span, Sync
from hcq.queues.device import HCQCompiled
from hcq.runtime import lines, watch
from hcq.runtime.copy import map_both
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.graph.graph import Graph


@contextmanager
def capture(inputs: Mapping[str, Any] | None = None) -> Iterator[Graph]:
    """Record the launches, `hcq.copy` and submits of explicit queues that this thread makes inside the block.

    Gives the Graph, which can be replayed once the block is left. Nothing runs while recording. `inputs` names buffers
    that replays may replace. Any number of devices; `stream=` is accepted and plays no part, since order comes from
    the bytes that commands read and write. Allocating and compiling inside is ordinary; RuntimeError for what would
    need results: host reads and writes of buffers, waits, `wait=True`, synchronize, copies from NPY. Other threads are
    not recorded. Captures don't nest. A block that raises leaves a graph that can't be replayed. TypeError for inputs
    that are no mapping.
    """
    from hcq.graph.graph import Graph

    if not isinstance(inputs, Mapping | None):
        raise TypeError(f"inputs must be a mapping of names to buffers, not {type(inputs).__name__}")
    recorder = Recorder()
    graph = Graph(recorder.nodes, recorder.kept, dict(inputs or {}))
    watch.begin_capture(recorder)
    try:
        yield graph
    finally:
        watch.end_capture()
        recorder.lanes.clear()
    graph.finish()


class Recorder(watch.Observer):
    """What a capture takes over: it makes nodes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.kept: dict[int, Any] = {}
        """Memory that the graph uses, by the id of its handle: (handle, what keeps it)."""
        self.lanes: dict[tuple[int, str], _Lane] = {}
        self._memory = _Memory()

    # What is recorded

    def launch(
        self, device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, stream: Any, wait: bool
    ) -> bool:
        if wait:
            raise RuntimeError(f"{program.name} with wait=True inside hcq.capture: nothing runs while recording")
        reads: list[Span] = []
        writes: list[Span] = []
        accesses = program.accesses
        for index, buf in enumerate(bufs):
            handle = getattr(buf, "_buf", buf)
            at = getattr(handle, "va_addr", None)
            if at is None:
                raise LaunchError(
                    f"{program.name}: argument {index} is a {type(buf).__name__}; a graph takes buffers, since arrays "
                    "may be gone at a replay: hcq.array makes buffers of them"
                )
            self._keep(buf, handle)
            span = at, at + getattr(buf, "nbytes", handle.size)
            access = (accesses[index] if accesses is not None else None) or "rw"
            if "r" in access:
                reads.append(span)
            if "w" in access:
                writes.append(span)
        self._add(Launch(program, bufs, vals, groups, items, reads, writes), "compute")
        return True

    def copy_buffers(self, dest: Any, src: Any, stream: Any) -> bool:
        for buf in (dest, src):
            if buf.device.partition(":")[0] == "NPY":
                raise RuntimeError("a copy from NPY inside hcq.capture: the array may have changed by a replay")
            self._keep(buf, buf._buf)
        to, here = (Device[buf.device] for buf in (dest, src))
        by_queue = getattr(to, "signal_t", None) is getattr(here, "signal_t", 0) and hasattr(here.allocator, "transfer")
        if not by_queue or (to is not here and not map_both(dest, src)):
            self._add(HostCopy(dest, src), "host")
            return True
        return self._copy(here, to, dest, src, dest._buf, src._buf, src.nbytes)

    def transfer(self, dest: Any, src: Any, nbytes: int, src_dev: Any, dest_dev: Any, stream: Any) -> bool:
        if src_dev.signal_t is not dest_dev.signal_t:
            raise RuntimeError(f"a transfer from {src_dev.dname} to {dest_dev.dname} inside hcq.capture: use hcq.copy")
        self._keep(dest, dest)
        self._keep(src, src)
        return self._copy(src_dev, dest_dev, dest, src, dest, src, nbytes)

    def copy(self, device: Any, dest: int, src: int, nbytes: int, stream: Any) -> bool:
        spans = [self._find(at, nbytes) for at in (dest, src)]
        node = Copy(device, dest, src, nbytes, None, None, f"{device.dname} -> {device.dname}")
        node.writes, node.reads = [spans[0]], [spans[1]]
        self._add(node, "copy")
        return True

    def submit(self, device: Any, queue: Any) -> bool:
        kind = "copy" if hasattr(queue, "copy") and not hasattr(queue, "exec") else "compute"
        if getattr(queue, "_copies", None) is not None:
            kind = "copy" if queue._copies else "compute"
        lane = self._lane(device, kind)
        timelines = {id(known.timeline_signal) for known in HCQCompiled.devices}
        clock: list[tuple[Any, ...]] = []
        for what, *args in watch.commands(queue):
            if what in ("signal", "wait") and id(args[0]) in timelines:
                clock.append((what, *args))
            elif what in ("signal", "wait", "timestamp"):
                self._sync(device, kind, what, args[0], args[1] if len(args) > 1 else 0)
            elif what == "exec":
                self._exec(lane, *args)
            elif what == "copy":
                node = Copy(device, args[0], args[1], args[2], None, None, f"{device.dname} -> {device.dname}")
                node.writes, node.reads = [self._find(args[0], args[2])], [self._find(args[1], args[2])]
                self._add(node, kind, lane)
        if any(what == "signal" for what, *_ in clock):
            # The timeline is the device's own count of what was queued, not part of the work: its values come now.
            with watch.quiet():
                beside = type(queue)()
                for what, signal, value in clock:
                    getattr(beside, what)(signal, value)
                beside.submit(device)
        return True

    # What is refused

    def host_read(self, buf: Any, offset: int, nbytes: int) -> None:
        raise _refused("reading a buffer")

    def host_write(self, buf: Any, offset: int, nbytes: int) -> None:
        raise _refused("writing a buffer from the host")

    def exported(self, buf: Any) -> None:
        raise _refused("access to a buffer's memory")

    def wait(self, signal: Any, value: int) -> None:
        raise _refused("waiting for a signal")

    def synchronize(self, device: Any) -> None:
        raise _refused(f"synchronizing {device.dname}")

    # Helpers

    def _add(self, node: Node, kind: str, lane: _Lane | None = None) -> None:
        node.index = len(self.nodes)
        node.line = lines.here()
        self.nodes.append(node)
        if lane is None:
            lane = self.lanes.get((id(node.device), kind))
        if lane is not None:
            lane.pass_by(node)

    def _copy(self, here: Any, to: Any, dest: Any, src: Any, dest_at: Any, src_at: Any, nbytes: int) -> bool:
        if to is not here:
            here.allocator.map(dest_at)
        name = f"{here.dname} -> {to.dname}"
        at, end = dest_at.va_addr, dest_at.va_addr + nbytes
        if (
            here.hw_copy_queue_t is not None
            and not hasattr(here.hw_copy_queue_t, "_commands")
            and (at < src_at.va_addr + nbytes and src_at.va_addr < end)
        ):
            # As if read first, on queues that copy only what doesn't overlap.
            from hcq import dtypes
            from hcq.runtime.buffer import Buffer

            between = Buffer(here.dname, nbytes, dtypes.uint8, preallocate=True)
            self._keep(between, between._buf)
            self._add(Copy(here, between._buf.va_addr, src_at.va_addr, nbytes, between, src, name), "copy")
            node = Copy(here, at, between._buf.va_addr, nbytes, dest, between, name)
        else:
            node = Copy(here, at, src_at.va_addr, nbytes, dest, src, name)
        if to is not here:
            node.peers = (to,)
        self._add(node, "copy")
        return True

    def _exec(self, lane: _Lane, program: Any, kernargs: int, groups: Any, items: Any) -> None:
        found = packed.read(program, kernargs)
        addresses = found.addresses
        spans: list[Span] = [EVERYTHING] if addresses is None else [self._find(at, None) for at in addresses]
        accesses = program.accesses if addresses is not None else None
        used = [(span, (accesses[index] if accesses else None) or "rw") for index, span in enumerate(spans)]
        reads = [span for span, access in used if "r" in access]
        writes = [span for span, access in used if "w" in access]
        node = Launch(program, (), found.vals or (), groups, items, reads, writes, found)
        node.spans = [(at, at + 1) for at in addresses or ()]  # how far it goes from there is not known
        self._add(node, "compute", lane)

    def _sync(self, device: Any, kind: str, what: str, signal: Any, value: int) -> None:
        node, lane = Sync(device, what, signal, value, kind), self._lane(device, kind)
        node.after = lane.all_before()
        self._add(node, kind, lane)
        lane.stand(node)

    def _lane(self, device: Any, kind: str) -> _Lane:
        key = id(device), kind
        if key not in self.lanes:
            # Whatever was recorded for this queue stands before what comes now.
            earlier = [
                node for node in self.nodes if node.device is device and (node.kind == "copy") == (kind == "copy")
            ]
            self.lanes[key] = _Lane(earlier)
        return self.lanes[key]

    def _keep(self, buf: Any, handle: Any) -> None:
        if id(handle) not in self.kept:
            self.kept[id(handle)] = handle, _native.memory_keep(buf)

    def _find(self, at: int, nbytes: int | None) -> Span:
        buf = self._memory.at(at)
        if buf is None:
            return (at, at + nbytes) if nbytes is not None else EVERYTHING
        handle = buf._buf
        self._keep(buf, handle)
        return (at, at + nbytes) if nbytes is not None else (at, handle.va_addr + buf.nbytes)


class _Lane:
    """The order of one hardware queue, once an explicit queue has signals, waits or time-stamps there."""

    def __init__(self, earlier: list[Node]) -> None:
        self._since = earlier
        self._last: Node | None = None

    def pass_by(self, node: Node) -> None:
        if self._last is not None and node is not self._last and self._last not in node.after:
            node.after.append(self._last)
        self._since.append(node)

    def all_before(self) -> list[Node]:
        return list(self._since)

    def stand(self, node: Node) -> None:
        self._last = node
        self._since = [node]


class _Memory:
    """The live buffers by address, for commands that name only that."""

    def __init__(self) -> None:
        self._buffers: list[Any] = []
        self._starts: list[int] = []

    def at(self, address: int) -> Any:
        """The root buffer that has this address, or None."""
        for fresh in (False, True):
            if fresh:
                found = [buf for buf in _native.live_roots() if hasattr(getattr(buf, "_buf", None), "va_addr")]
                # All buffers of a file begin at one address: the longest comes last, and is found.
                self._buffers = sorted(found, key=lambda buf: (int(buf._buf.va_addr), buf.nbytes))
                self._starts = [buf._buf.va_addr for buf in self._buffers]
            index = bisect_right(self._starts, address) - 1
            if index >= 0 and self._buffers[index].is_allocated():
                buf = self._buffers[index]
                if buf._buf.va_addr <= address < buf._buf.va_addr + buf.nbytes:  # it may have other memory by now
                    return buf
        return None


def _refused(what: str) -> RuntimeError:
    return RuntimeError(f"{what} inside hcq.capture: nothing runs while recording; do it before or after the block")
