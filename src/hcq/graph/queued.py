"""Graphs on any devices with command queues: bound queues, whose waits and signals are updated for each replay.

What does not live here: devices of native queues (native), and which queue takes what (plan).
"""

from __future__ import annotations

import functools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hcq import config
from hcq.errors import LaunchError, SignalTimeout
from hcq.graph.inputs import Seen
from hcq.graph.native import value_keys
from hcq.graph.nodes import Copy, Launch, Node, Sync, span_of
from hcq.graph.plan import LaneKey, plan
from hcq.queues import launch
from hcq.queues.command_queue import queue_full
from hcq.queues.kernargs import Block
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.graph.inputs import Use
    from hcq.graph.plan import Plan
    from hcq.graph.work import Work

_MOST_UNDER_WAY = 4
"""Replays with different arguments that may run at a time; a further one waits for the oldest."""

_NAP = 100e-6


@functools.cache
def commands_for(signal_t: Any) -> type[QueuedCommands]:
    """The class of graphs on devices with that kind of signal: queues that can wait for each other."""
    return type("QueuedCommands", (QueuedCommands,), {"signal_t": signal_t})


class QueuedCommands:
    """The commands of a graph, or of a part of it, in queues of its devices. One thread at a time."""

    signal_t: Any

    def __init__(self, work: Work) -> None:
        self.plan = plan(work.nodes, work.before, lanes, work.serial)
        self.seen = Seen(work.nodes, work.inputs)
        self.indices = work.indices
        self.in_order = len({step.lane for step in self.plan.steps}) < 2
        self._uses = work.uses
        self._inputs: dict[int, Any] = {}  # by slot; those that are no longer as captured
        self._launches = {node.index: node for node in work.nodes if isinstance(node, Launch)}
        self._vals = {index: list(node.vals) for index, node in self._launches.items()}
        self._sizes = {index: (node.groups, node.items) for index, node in self._launches.items()}
        self._keys: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for index, node in self._launches.items():
            for position, key in enumerate(value_keys(node) if node.vals else ()):
                self._keys.setdefault(key, []).append((index, position))
        self._changed = 0  # counts changes
        self._copies: list[_Copy] = []

    def replay(self) -> Replay:
        """Queue all commands, once."""
        return self._current().submit(self)

    def set_input(self, slot: int, buf: Any) -> None:
        """Use `buf` from the next replay on."""
        self._inputs[slot] = buf
        self._changed += 1

    def set_value(self, node: Launch, position: int, value: Any, dry: bool = False) -> None:
        """Use another value from the next replay on; `dry` only raises where it can't be. LaunchError."""
        if node.kernargs is not None:
            raise LaunchError(f"{node.name}: a value of kernargs that were filled by hand can't be changed")
        changed = list(self._vals[node.index])
        changed[position] = value
        launch.pack_values(changed, node.program.value_types)
        if not dry:
            self._vals[node.index] = changed
            self._changed += 1

    def set_values(self, keys: Sequence[tuple[str, str]], value: Any, dry: bool = False) -> None:
        """Use another value in all launches that have one of these keys."""
        for key in keys:
            for index, position in self._keys.get(key, ()):
                self.set_value(self._launches[index], position, value, dry)

    def set_sizes(self, node: Launch, groups: Any, items: Any, dry: bool = False) -> None:
        """Use other sizes from the next replay on."""
        checked = launch.check_sizes(groups, items, node.device.limits)
        if not dry:
            self._sizes[node.index] = checked
            self._changed += 1

    def arguments(self, node: Launch) -> tuple[list[Any], Sequence[Any]]:
        """The handles and values that a launch has now."""
        handles = list(node.handles)
        for use in self._uses.get(node.index, ()):
            if use.slot in self._inputs:
                buf = self._inputs[use.slot]
                handle = getattr(buf, "_buf", buf)
                size = handles[use.which].size if use.offset else handle.size
                allocator = node.device.allocator
                handles[use.which] = allocator.offset(handle, size, use.offset) if use.offset else handle
        return handles, self._vals[node.index]

    def replaced(self, node: Node) -> list[Use]:
        """What a command uses of inputs that are no longer as captured."""
        return [use for use in self._uses.get(node.index, ()) if use.slot in self._inputs]

    def address(self, use: Use) -> int:
        """Where that is now."""
        return span_of(self._inputs[use.slot])[0] + use.offset

    def addresses(self, node: Copy) -> tuple[int, int]:
        """Where a copy goes to and comes from now."""
        at = [node.dest_at, node.src_at]
        for use in self.replaced(node):
            at[use.which] = self.address(use)
        return at[0], at[1]

    def sizes(self, node: Launch) -> tuple[Any, Any]:
        """The sizes that a launch has now."""
        return self._sizes[node.index]

    @property
    def used(self) -> list[Any]:
        """What replaced inputs, for submits to keep."""
        return list(self._inputs.values())

    def _current(self) -> _Copy:
        # An unchanged one can be queued again while it runs; arguments in memory are changed only where nothing does.
        for copy in self._copies:
            if copy.version == self._changed:
                return copy
        for copy in self._copies:
            if copy.over():
                copy.renew(self, self._changed)
                return copy
        if len(self._copies) == _MOST_UNDER_WAY:
            oldest = min(self._copies, key=lambda copy: copy.submits)
            oldest.wait()
            oldest.renew(self, self._changed)
            return oldest
        self._copies.append(_Copy(self, self._changed, self.signal_t))
        return self._copies[-1]


class _Copy:
    """Queues and kernargs of their own, with the arguments as they were at one time."""

    def __init__(self, commands: QueuedCommands, version: int, signal_t: Any) -> None:
        self.version = version
        self.submits = 0
        self._plan: Plan = commands.plan
        self._counters = [signal_t(0) for _ in self._plan.lanes]
        self._marks = [0 for _ in self._plan.lanes]
        self._base = 0
        self._last: Replay | None = None
        self._queues: list[Any] = []
        self._lines: list[dict[int, int]] = [{} for _ in self._plan.lanes]  # by command, of each lane
        self._updates: list[Callable[[], object]] = []
        self._kernargs: dict[int, int] = {}
        self._blocks: list[Any] = []
        self._at: dict[int, tuple[int, int]] = {}  # (lane, command) of a node
        self._timed: list[tuple[int, int, int, int, bool]] = []  # (lane, command, of lane, mark, is a signal)
        self._starts: list[tuple[int, int, Any]] = []  # (lane, command, device)
        self._ends: list[tuple[int, int, Any]] = []
        self._build(commands)
        for lane, queue in enumerate(self._queues):
            if len(queue):
                queue.bind(self._plan.lanes[lane].device)

    def over(self) -> bool:
        """Whether its last submit is."""
        return self._last is None or self._last.done

    def wait(self) -> None:
        """Wait for its last submit."""
        if self._last is not None:
            self._last.wait()

    def renew(self, commands: QueuedCommands, version: int) -> None:
        """Take over what has changed."""
        for step in self._plan.steps:
            node = step.node
            if isinstance(node, Launch):
                self._fill(commands, node)
                lane, at = self._at[node.index]
                self._queues[lane].update_exec(at, *commands.sizes(node))
            elif isinstance(node, Copy) and node.nbytes:
                lane, at = self._at[node.index]
                self._queues[lane].update_copy(at, *commands.addresses(node))
        self.version = version

    def submit(self, commands: QueuedCommands) -> Replay:
        """Queue all of it, on the timelines of its devices."""
        plan = self._plan
        mains = {id(plan.lanes[lane].device): plan.lanes[lane].device for lane in plan.ends}
        devices = sorted(mains.values(), key=id)
        for device in devices:
            device.check_usable()
        with ExitStack() as locks:
            for device in devices:  # always in the same order
                locks.enter_context(device.timeline_lock)
                device._stay_in_32_bits()
            values = {id(device): device.timeline_value for device in devices}
            self._set_values(values)
            # Those that set a timeline last: a value is spoken for only once all before it are queued.
            order = sorted(range(len(self._queues)), key=lambda lane: lane in plan.ends)
            used = commands.used
            sent = False
            with watch.quiet():
                try:
                    for lane in order:
                        if len(self._queues[lane]):
                            self._send(lane, used, lane in plan.ends)
                            sent = True
                except BaseException as error:
                    if not sent and isinstance(error, SignalTimeout):
                        raise  # nothing was queued: the devices go on
                    for device in devices:
                        if device.timeline_value == values[id(device)]:
                            device.lose(error, "replay of a graph")
                    raise
        pairs = [(device, device.timeline_signal, values[id(device)]) for device in devices]
        self.submits += 1
        self._last = Replay(pairs)
        if watch.active:
            watch.replayed(commands.seen, pairs)
        return self._last

    def _send(self, lane: int, used: Sequence[Any], main: bool) -> None:
        device, queue = self._plan.lanes[lane].device, self._queues[lane]
        queue._kept[:] = [*used, self]  # until the submit is over, whatever becomes of the graph
        if main:
            device.timeline_value += 1
        deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        while not queue.try_submit(device):
            if time.monotonic() > deadline:
                if main:
                    device.timeline_value -= 1
                raise queue_full(device, queue.lane_name)
            time.sleep(_NAP)
        queue._kept.clear()  # the submit has them; a graph that nobody has is not to be kept by its own queues

    def _set_values(self, values: dict[int, int]) -> None:
        queues, counters = self._queues, self._counters
        for lane, at, device in self._starts:
            queues[lane].update_wait(at, device.timeline_signal, values[id(device)] - 1)
        for lane, at, device in self._ends:
            queues[lane].update_signal(at, device.timeline_signal, values[id(device)])
        for lane, at, other, mark, signals in self._timed:
            update = queues[lane].update_signal if signals else queues[lane].update_wait
            update(at, counters[other], self._base + mark)
        self._base += max(self._marks) + 1

    def _build(self, commands: QueuedCommands) -> None:
        plan = self._plan
        devices = [plan.lanes[lane].device for lane in plan.ends]
        used = {step.lane for step in plan.steps} | plan.ends.keys()
        for lane, key in enumerate(plan.lanes):
            copies = key.takes == "copy"
            queue = (key.device.hw_copy_queue_t if copies else key.device.hw_compute_queue_t)()
            self._queues.append(queue)
            queue.lines = self._lines[lane]
            if lane not in used:
                continue
            for device in devices:
                self._starts.append((lane, len(queue), device))
                queue.wait(device.timeline_signal, 0)
            if not copies:
                queue.memory_barrier()
        marks: dict[int, tuple[int, int]] = {}
        last: dict[int, tuple[int, int] | None] = {}
        for node, lane, waits in plan.steps:
            for source in waits:
                self._wait(lane, *marks[source])
            self._add(commands, node, lane)
            last[lane] = None
            if node.index in plan.marked:
                marks[node.index] = last[lane] = self._mark(lane)
        # Every timeline waits for all lanes of all devices: later work on one comes after all of the graph.
        for lane in used - plan.ends.keys():
            if last.get(lane) is None:
                last[lane] = self._mark(lane)
        for main in plan.ends:
            if len(plan.ends) > 1:
                last[main] = last.get(main) or self._mark(main)
        for main, others in plan.ends.items():
            for other in sorted({*others, *(plan.ends if len(plan.ends) > 1 else ())} - {main}):
                end = last[other]
                if end is not None:
                    self._wait(main, *end)
            device, queue = plan.lanes[main].device, self._queues[main]
            self._ends.append((main, len(queue), device))
            queue.signal(device.timeline_signal, 0)

    def _mark(self, lane: int) -> tuple[int, int]:
        self._marks[lane] += 1
        self._timed.append((lane, len(self._queues[lane]), lane, self._marks[lane], True))
        self._queues[lane].signal(self._counters[lane], 0)
        return lane, self._marks[lane]

    def _wait(self, lane: int, other: int, mark: int) -> None:
        self._timed.append((lane, len(self._queues[lane]), other, mark, False))
        self._queues[lane].wait(self._counters[other], 0)

    def _add(self, commands: QueuedCommands, node: Node, lane: int) -> None:
        queue = self._queues[lane]
        self._at[node.index] = lane, len(queue)
        self._lines[lane][len(queue)] = node.line
        if isinstance(node, Launch):
            block = Block(node.device, node.program.kernargs_alloc_size)
            self._blocks.append(block)
            self._kernargs[node.index] = block.va_addr
            self._fill(commands, node)
            queue.exec(node.program, block.va_addr, *commands.sizes(node))
        elif isinstance(node, Copy):
            queue.copy(*commands.addresses(node), node.nbytes)
        elif isinstance(node, Sync) and not node.inside:
            if node.kind == "timestamp":
                queue.timestamp(node.signal)
            else:
                getattr(queue, node.kind)(node.signal, node.value)

    def _fill(self, commands: QueuedCommands, node: Launch) -> None:
        at = self._kernargs[node.index]
        if node.kernargs is not None:
            import ctypes

            ctypes.memmove(at, node.kernargs, len(node.kernargs))
            for use in commands.replaced(node):
                place = at + node.program.kernargs_args_offset + 8 * use.which
                ctypes.c_uint64.from_address(place).value = commands.address(use)
            return
        handles, vals = commands.arguments(node)
        node.program.fill_kernargs(handles, vals, at)


class Replay:
    """One replay. It may be dropped without waiting. Any thread."""

    def __init__(self, pairs: Sequence[tuple[Any, Any, int]]) -> None:
        self._pairs = pairs

    @property
    def done(self) -> bool:
        """Whether it is over; never blocks."""
        return all(signal.value >= value for _, signal, value in self._pairs)

    def wait(self, timeout: float | None = None) -> None:
        """Return once it is over; raises DeviceLost where a command failed, SignalTimeout after so many milliseconds.

        Without a time-out, HCQ_TIMEOUT_MS holds for queues that stand at a wait.
        """
        for device, signal, value in self._pairs:
            if timeout is None:
                device.wait_for([(signal, value)])
            else:
                signal.wait(value, timeout)


def lanes(device: Any) -> list[LaneKey]:
    """The hardware queues of a device in Python: one that runs programs, and one that copies, if there is one."""
    compute = LaneKey(device, 0, "compute")
    return [compute] if device.hw_copy_queue_t is None else [compute, LaneKey(device, 1, "copy")]
