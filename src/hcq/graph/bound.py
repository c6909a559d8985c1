"""The queues of a graph on any devices with command queues, bound, with kernargs of their own; and what a replay gives.

What does not live here: which arguments they have, and how many sets of them there are (queued).
"""

from __future__ import annotations

import ctypes
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hcq import config
from hcq.errors import SignalTimeout
from hcq.graph.nodes import Copy, Launch, Node, Sync
from hcq.queues import launch
from hcq.queues.command_queue import queue_full
from hcq.queues.kernargs import Block
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.graph.plan import Plan
    from hcq.graph.queued import QueuedCommands

_NAP = 100e-6


class BoundQueues:
    """A graph's queues and kernargs, with the arguments as they were at one time. One thread at a time."""

    def __init__(self, commands: QueuedCommands, version: int, signal_t: Any) -> None:
        self.version = version
        self.submits = 0
        self._plan: Plan = commands.plan
        self._counters = [signal_t(0) for _ in self._plan.lanes]
        self._marks = [0 for _ in self._plan.lanes]
        self._base = 0
        self._reached = 0  # where the counters began for the replay that is being submitted
        self._handing = False  # whether a lane's words may have gone to the driver
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
            before = self._last
            # Now, so that whoever changes arguments waits for it, even after Control-C.
            self._last = replay = Replay([(device, device.timeline_signal, values[id(device)]) for device in devices])
            # Those that set a timeline last: a value is spoken for only once all before it are queued.
            left = sorted(
                (lane for lane in range(len(self._queues)) if len(self._queues[lane])), key=plan.ends.__contains__
            )
            most, used, interrupted, self._handing = len(left), commands.used, None, False
            with watch.quiet():
                while left:
                    try:
                        self._send(left[0], used, left[0] in plan.ends)
                        del left[0]
                    except Exception as error:
                        if len(left) == most and isinstance(error, SignalTimeout):
                            self._last = before
                            raise  # nothing was queued: the devices go on
                        for device in devices:
                            if device.timeline_value == values[id(device)]:  # queues of it wait for what nobody queued
                                device.lose(error, "replay of a graph")
                        raise
                    except BaseException as error:
                        interrupted = error
                        if len(left) == most and not self._handing:
                            break  # nothing was queued
                        try:
                            self._end_again(left.pop(0), values)
                        except BaseException as second:
                            for device in devices:
                                device.lose(second, "replay of a graph")
                            raise
            if left:  # interrupted before anything was queued
                self._last = before
                for device in devices:
                    device.timeline_value = min(device.timeline_value, values[id(device)])
        if not left:
            self.submits += 1
            if watch.active:
                watch.replayed(commands.seen, replay.pairs)
        if interrupted is not None:
            raise interrupted
        return replay

    def _end_again(self, lane: int, values: dict[int, int]) -> None:
        """Make sure that others needn't wait for a lane, after Control-C in the middle of its submit.

        It may have been submitted or not; setting what it sets once more, right behind it, does no harm.
        """
        plan, device = self._plan, self._plan.lanes[lane].device
        queue: Any = type(self._queues[lane])()
        if lane in plan.ends:
            if device.timeline_value == values[id(device)]:
                device.timeline_value += 1
            queue.wait(device.timeline_signal, values[id(device)] - 1)
        queue.signal(self._counters[lane], self._reached + self._marks[lane])
        if lane in plan.ends:
            for other, commands in enumerate(self._queues):
                if other != lane and len(commands):
                    queue.wait(self._counters[other], self._reached + self._marks[other])
            queue.signal(device.timeline_signal, values[id(device)])
        queue.keep(self).submit(device)

    def _send(self, lane: int, used: Sequence[Any], main: bool) -> None:
        device, queue = self._plan.lanes[lane].device, self._queues[lane]
        queue._kept[:] = [*used, self]  # until the submit is over, whatever becomes of the graph
        if main:
            device.timeline_value += 1
        deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        while True:
            self._handing = True
            if queue.try_submit(device):
                break
            self._handing = False
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
        self._reached = self._base
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
            start, count = at + node.program.kernargs_args_offset, len(node.kernargs.addresses or ())
            ctypes.memmove(at, node.kernargs.data, len(node.kernargs.data))
            for use in commands.replaced(node):
                ctypes.c_uint64.from_address(start + 8 * use.which).value = commands.address(use)
            vals = commands.vals(node)
            if vals is not node.vals:
                data = launch.pack_values(vals, node.program.value_types)
                ctypes.memmove(start + 8 * count, data, len(data))
            return
        handles, vals = commands.arguments(node)
        node.program.fill_kernargs(handles, vals, at)


class Replay:
    """One replay. It may be dropped without waiting. Any thread."""

    def __init__(self, pairs: Sequence[tuple[Any, Any, int]]) -> None:
        self.pairs = pairs
        """(device, signal, value) of each timeline."""

    @property
    def done(self) -> bool:
        """Whether it is over; never blocks."""
        return all(signal.value >= value for _, signal, value in self.pairs)

    def wait(self, timeout: float | None = None) -> None:
        """Return once it is over; raises DeviceLost where a command failed, SignalTimeout after so many milliseconds.

        Without a time-out, HCQ_TIMEOUT_MS holds for queues that stand at a wait.
        """
        for device, signal, value in self.pairs:
            if timeout is None:
                device.wait_for([(signal, value)])
            else:
                signal.wait(value, timeout)

    def __repr__(self) -> str:
        where = ", ".join(device.dname for device, _, _ in self.pairs)
        return f"<Replay on {where}, {'over' if self.done else 'under way'}>"
