"""HCQCompiled: a device of command queues, its timeline, and where its queues stand.

What does not live here: what a submit holds (lane), launches (program), copies (allocator), streams (stream). The CPU
devices put a native type in front of this class, which brings timeline, positions and synchronize of its own.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from hcq import _native, config
from hcq.errors import DeviceLost, SignalTimeout
from hcq.runtime import watch
from hcq.runtime.compiled import Compiled
from hcq.runtime.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    from hcq.queues import faults, profile, report
    from hcq.queues.command_queue import HWCommandQueue
    from hcq.queues.kernargs import Kernargs
    from hcq.queues.lane import Lane
    from hcq.queues.stream import Stream
else:  # for what fails, and for queues that are written in Python
    faults, profile, report = Later("hcq.queues.faults"), Later("hcq.queues.profile"), Later("hcq.queues.report")

Position = tuple[tuple[Any, int], ...]

_NAP = 100e-6
_LEAVE_SECONDS, _INTERRUPTED_SECONDS = 5.0, 0.5
_LAST_32_BITS = 2**32 - 2**16  # leaves room for what other threads reserve meanwhile


class _Devices:
    """`HCQCompiled.devices`: the open devices of that class in this process, in the order of their opening."""

    def __init__(self) -> None:
        self.known: dict[int, weakref.ref[HCQCompiled]] = {}

    def __get__(self, instance: object, owner: type[HCQCompiled]) -> list[HCQCompiled]:
        made = [device for ref in list(self.known.values()) if (device := ref()) is not None]
        # what a forked child inherited can't be asked anything, whether it is closed included
        # (files go on in a child, but have no queues there: `inherited`)
        mine = [device for device in made if not type(device)._inherited and not getattr(device, "inherited", False)]
        return [device for device in mine if isinstance(device, owner) and not device.closed]

    def add(self, device: HCQCompiled) -> None:
        key = id(device)
        self.known[key] = weakref.ref(device, lambda _: self.known.pop(key, None))


_known = _Devices()


class HCQCompiled(Compiled):
    """A device whose work goes through command queues, ordered by its timeline.

    The timeline is a signal and the value that the next piece of work will set it to: work waits for the value before
    its own and sets its own when done. A driver calls `__init__`, gives its queue classes, and overrides `_close`
    and `reaches` as needed. When a command fails it calls `lose`.

    - `signal_t(value=0)`, `hw_compute_queue_t()`, `hw_copy_queue_t()` (None where there is none) make signals, queues;
    - `timeline_signal`, `timeline_value`: the device is idle when the signal is at least `timeline_value - 1`. Clients
      may raise the value themselves and submit work that sets it; with other threads about, they hold
      `timeline_lock`, from reading the value until after the submit.

    Threads may share a device.
    """

    devices: ClassVar[_Devices] = _known
    """The open devices of this class and its subclasses, in this process, in the order of their opening."""

    graph_commands: Any = None
    """How graphs run here: None for command queues; a driver with graphs of its own gives what hcq.graph.queued's
    QueuedCommands is: made with an hcq.graph.work.Work, it replays and changes arguments."""

    lost: DeviceLost | None = None
    """Why the device is lost; None while it is well."""

    timeline_signal: Any
    timeline_value: int
    hw_compute_queue_t: Any
    hw_copy_queue_t: Any
    _narrow = False

    def __init__(
        self,
        device: str,
        allocator: Any,
        renderer: Any,
        compiler: Any,
        runtime: Callable[..., Any] | None,
        signal_t: Callable[..., Any],
        comp_queue_t: type[HWCommandQueue] | None,
        copy_queue_t: type[HWCommandQueue] | None,
        timeline_signals: Sequence[Any] | None = None,
    ) -> None:
        """`comp_queue_t` None: the class has both queue types itself, as properties, of 64-bit signals."""
        super().__init__(device, allocator, renderer, compiler, runtime, list_graph)
        self.signal_t = signal_t
        if comp_queue_t is not None:
            self.hw_compute_queue_t = comp_queue_t
            self.hw_copy_queue_t = copy_queue_t
            self._narrow = comp_queue_t.signal_bits == 32
        self.lanes: tuple[Lane, ...] = ()
        self._lanes: dict[str, Lane] = {}
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._init_timeline(timeline_signals)
        _known.add(self)

    @functools.cached_property
    def kernargs(self) -> Kernargs:
        """Where HCQProgram writes the arguments of launches; made when it is first needed."""
        from hcq.queues.kernargs import Kernargs

        made: Kernargs = vars(self).setdefault("kernargs", Kernargs(self))  # another thread may have been first
        return made

    def _init_timeline(self, timeline_signals: Sequence[Any] | None) -> None:
        """Set up the timeline. Where a native type brings one, its device overrides this."""
        self.timeline_lock = threading.RLock()
        self._spare_signals = list(timeline_signals) if timeline_signals is not None else []
        self.timeline_signal = self._fresh_signal()
        self.timeline_value = 1
        self._publishing: tuple[int, int] | None = None
        self._losing = threading.Lock()
        self._dropped: BaseException | None = None

    # Timeline

    def next_timeline(self) -> int:
        """Reserve the next timeline value: atomic, and the caller must see to it that it gets signalled."""
        with self.timeline_lock:
            value = self.timeline_value
            self.timeline_value = value + 1
            return value

    def enqueue(self, build: Callable[[Any, int], HWCommandQueue]) -> tuple[Any, int]:
        """Put work on the timeline: `build(signal, value)` gives a queue that waits for value - 1 and sets value.

        The value is reserved and the queue submitted under one lock, so that values come in order; where the submit
        fails, the value is free again. `build` may be called more than once and changes nothing else. Returns the
        (signal, value) that tells when it is done. Waits while the hardware queue is full.
        """
        deadline = None
        while True:
            with self.timeline_lock:
                self._stay_in_32_bits()
                signal, value = self.timeline_signal, self.timeline_value
                queue = build(signal, value)
                if self.timeline_value != value:
                    continue  # a finalizer launched something while this was built
                if self._submit_reserved(queue, value):
                    return signal, value
            if deadline is None:
                deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
            elif time.monotonic() > deadline:
                from hcq.queues.command_queue import queue_full

                raise queue_full(self, queue.lane_name)
            time.sleep(_NAP)

    def _submit_reserved(self, queue: HWCommandQueue, value: int) -> bool:
        # Reserved before the submit: a finalizer that synchronizes right after it must know of it.
        self.timeline_value = value + 1
        self._publishing = (threading.get_ident(), value)
        try:
            done = queue.try_submit(self)
        except Exception:
            self.timeline_value = value  # nothing was submitted
            raise
        except BaseException:
            self.end_again(type(queue), self.timeline_signal, value)
            raise
        finally:
            self._publishing = None
        if not done:
            self.timeline_value = value
        return done

    def end_again(self, kind: type[HWCommandQueue], signal: Any, value: int) -> None:
        """Make sure that `signal` gets a reserved `value`, after a submit that Control-C interrupted.

        It may have been submitted or not; setting the value once more, right behind it, does no harm.
        """
        kind().wait(signal, value - 1).signal(signal, value).submit(self)

    def _stay_in_32_bits(self) -> None:
        if self._narrow and self.timeline_value >= _LAST_32_BITS:
            self.synchronize()

    def _fresh_signal(self) -> Any:
        return self._spare_signals.pop(0) if self._spare_signals else self.signal_t(0)

    # Positions: where the queues stand, whatever clients do to the timeline

    def lane(self, queue: HWCommandQueue) -> Lane:
        """The lane that takes this queue's submits."""
        name = queue.lane_name
        lane = self._lanes.get(name)
        if lane is None:
            with self.timeline_lock:
                lane = self._lanes.get(name)
                if lane is None:
                    from hcq.queues.lane import Lane  # devices with native queues have none

                    lane = self._lanes[name] = Lane(self, name)
                    self.lanes = (*self.lanes, lane)
        return lane

    def position(self) -> Position | None:
        """(signal, value) pairs that are all reached once everything submitted until now is over; None when idle.

        Takes no lock, so that finalizers may ask. On a lost device it raises: nothing to wait for, and none to free.
        """
        if self.lost is not None:
            raise faults.again(self.lost)
        return self._unfinished() or None

    def passed(self, position: Position | None) -> bool:
        """Whether all that was submitted before `position` was taken is over. A lost device has passed everything."""
        return self.lost is not None or all(self._over(signal, value) for signal, value in position or ())

    def is_reached(self, signal: Any, value: int) -> bool:
        """For drivers whose waits are done in Python: whether this device's queues may pass `wait(signal, value)`.

        Raises DeviceLost where the value will never come. On its own timeline a value that was dropped counts as come:
        later work goes on.
        """
        if signal is self.timeline_signal or any(signal is stream.signal for stream in self._streams):
            return bool(signal.value >= value)
        return bool(signal.is_reached(value))

    def ordering(self) -> list[tuple[Any, int]]:
        """(signal, value) pairs for a queue to wait for so as to come after all work queued until now."""
        with self.timeline_lock:
            pair = self.timeline_signal, self.timeline_value - 1
        return [pair, *self._unfinished()]

    def _over(self, signal: Any, value: int) -> bool:
        # A number beyond the last submit's was taken back, when that submit failed: nothing will reach it.
        taken_back = any(signal is lane.signal and value > lane.submitted for lane in self.lanes)
        return taken_back or bool(signal.value >= value)

    def _unfinished(self) -> Position:
        pairs = [lane.position for lane in self.lanes]
        return tuple((signal, value) for signal, value in pairs if signal.value < value)

    def reaches(self, buf: Any) -> bool:
        """Whether kernels here can use `buf`, a Buffer. Its own device's, unless the driver says more."""
        return bool(buf.device == self.dname)

    # Waiting

    def synchronize(self) -> None:
        """Return when all that was queued has finished. Blocks.

        Raises DeviceLost where a command failed, with the first cause; SignalTimeout, naming the wait that a queue
        stands at, after HCQ_TIMEOUT_MS: the device stays good then.
        """
        self.check_usable()
        if watch.active:
            watch.synchronize(self)
            with watch.quiet():
                self._drain()
            watch.synchronized(self)
        else:
            self._drain()

    def _drain(self) -> None:
        for pair in self._all_queued():
            try:
                self.wait_for([pair])
            except DeviceLost:
                # Our own loss is raised below; so is, once, that a submit was dropped because of another device.
                continue
        self._after_wait()

    def wait_for(self, pairs: Iterable[tuple[Any, int]]) -> None:
        """Wait until all (signal, value) that this device's work sets are reached; raises like synchronize."""
        patience = None
        for signal, value in pairs:
            if not watch.active and signal.is_reached(value):
                continue
            if patience is None:
                from hcq.queues.patience import Patience

                patience = Patience(self)
            while True:
                try:
                    signal.wait(value, patience.slice_ms())
                    break
                except SignalTimeout as error:
                    patience.ran_out(error)

    async def idle(self) -> None:
        """Await what synchronize waits for; raises the same, without a deadline."""
        self.check_usable()
        for signal, value in self._all_queued():
            try:
                await signal.reached(value)
            except DeviceLost:
                continue  # as in synchronize
        self._after_wait()

    def _all_queued(self) -> list[tuple[Any, int]]:
        with self.timeline_lock:
            signal, value = self.timeline_signal, self.timeline_value - 1
            if self._publishing is not None and self._publishing[0] == threading.get_ident():
                value = self._publishing[1] - 1  # a finalizer in the middle of our own submit
        return [(signal, value), *self._unfinished()]

    def _after_wait(self) -> None:
        self.check_usable()
        dropped, self._dropped = self._dropped, None
        for lane in self.lanes:
            lane.collect()
        profile.collect(self)
        if self._narrow:
            self._wrap()
        if dropped is not None:
            raise faults.again(dropped)

    def _wrap(self) -> None:
        from hcq.queues.lane import WRAP

        for lane in self.lanes:
            lane.renew()
        for stream in list(self._streams):
            stream.renew()
        with self.timeline_lock:
            last = self.timeline_value - 1
            if last >= WRAP and self._publishing is None and self.timeline_signal.value >= last:
                # The old signal keeps its value, so whoever holds (signal, value) finds it satisfied. The value first:
                # (old signal, 0) is reached, for a reader without the lock.
                self.timeline_value = 1
                self.timeline_signal = self._fresh_signal()

    def stream(self) -> Stream:
        """A new ordered handle on this device: work given to different ones runs side by side where the device can."""
        from hcq.queues.stream import Stream

        self.check_usable()
        stream = Stream(self)
        self._streams.add(stream)
        return stream

    def host_time(self, timestamp: Decimal, is_copy: bool = False) -> Decimal:
        """A signal's time-stamp on the clock of time.perf_counter_ns, in microseconds. Here the clocks are the same."""
        return timestamp

    # Failure

    def check_usable(self) -> None:
        """Raise ForkedDeviceError in a forked child, RuntimeError when closed, DeviceLost when lost."""
        super().check_usable()
        lost = self.lost
        if lost:
            if not isinstance(lost, BaseException):
                self.synchronize()  # a native device says only that it is lost, and raises the cause here
            raise faults.again(lost)

    def lose(self, cause: BaseException | str, command: str | None = None) -> None:
        """The driver's call when a command failed: the device is lost, and whoever waits for its work is told.

        The first cause stays. Every signal that work under way was to set is marked: waiters, on any device, get
        DeviceLost. Any thread may call this.
        """
        told = report.queues(self) if self.lost is None else ""  # as they are before anybody is told
        with self._losing:
            if self.lost is not None:
                return
            self.lost = error = faults.lost(self.dname, cause, command, told)
        self.timeline_signal.fail(error, self.timeline_signal.value + 1)
        for lane in self.lanes:
            for submit in list(lane.under_way):
                for name, args in zip(submit.queue.cmds_meta, submit.queue.cmds_args, strict=False):
                    if name == "signal" and args[0].value < args[1]:
                        args[0].fail(error, args[0].value + 1)
            lane.signal.fail(error, lane.signal.value + 1)

    def drop(self, error: BaseException, signals: Iterable[tuple[Any, int]]) -> None:
        """The driver's call when a submit can't go on because it waited for a lost device: this device stays good.

        `signals` are the (signal, value) that the rest of the submit was to set: those values fail with `error`, and
        the signals go on past them. The next synchronize raises `error`.
        """
        self._dropped = self._dropped or error
        for signal, value in signals:
            if signal.value < value:
                if not any(signal is lane.signal for lane in self.lanes):
                    signal.fail(error, signal.value + 1, value)
                signal.value = value

    def _leave(self) -> None:
        """A driver's own part of leaving the interpreter: called once what is queued had its time. Raises nothing."""

    def _close(self) -> None:
        """Free what this class holds. A driver that overrides this calls it first, while its memory is still there."""
        for lane in self.lanes:
            lane.under_way.clear()
        self._free_held()

    def _free_held(self) -> None:
        # clients may have put another allocator here
        for held in (vars(self).get("kernargs"), getattr(self.allocator, "__dict__", {}).get("staging")):
            if held is not None:  # else nothing needed it
                held.free()


def list_graph(items: Iterable[Any], inputs: Sequence[Any], variables: Any) -> Any:
    """What `dev.graph` is unless a client replaces it: hcq.graph.ListGraph, which stands on devices, not below them."""
    from hcq.graph import ListGraph

    return ListGraph(items, inputs, variables)


@atexit.register
def _leave() -> None:
    # What is queued gets some time to finish, all of it together; what is wrong with it is nobody's concern any more.
    # Native queues come last: the count of what they have leaves out those that stand at waits for the others.
    deadline = time.monotonic() + _patience()
    devices = HCQCompiled.devices
    for device in devices:
        for signal, value in device._unfinished():
            try:
                signal.wait(value, max(0.0, deadline - time.monotonic()) * 1000)
            except Exception:
                break
    _native.drain(max(0.0, deadline - time.monotonic()))
    for device in devices:
        device._leave()


def _patience() -> float:
    """Seconds queued work has when the interpreter ends: few where Ctrl-C ends it, perhaps because of that work."""
    interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)  # the exception that nobody caught
    return _INTERRUPTED_SECONDS if interrupted else _LEAVE_SECONDS
