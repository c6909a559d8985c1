"""Command queues: lists of commands, built once and submitted as often as wanted.

The public methods check their arguments, count the command and call the driver's underscored one, which appends the
command's words to `self.q`. What does not live here: keeping track of what was submitted (lane), and the commands of
the CPU devices, which are native. docs/write-a-driver.md shows a driver.
"""

from __future__ import annotations

import functools
import operator
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from hcq import config
from hcq.errors import LaunchError, SignalTimeout
from hcq.queues import launch
from hcq.queues.signal import check_signal, check_value
from hcq.runtime import process, watch
from hcq.runtime.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hcq.queues import faults, report
    from hcq.queues.device import HCQCompiled
else:  # for what fails
    faults, report = Later("hcq.queues.faults"), Later("hcq.queues.report")

P = ParamSpec("P")
Q = TypeVar("Q", bound="HWCommandQueue")

_FULL_NAP = 100e-6


def hcq_command(method: Callable[Concatenate[Q, P], object]) -> Callable[Concatenate[Q, P], Q]:
    """Decorate a method that appends one command's words to `self.q`; it then returns the queue.

    Where the words begin, how many there are and which method made them is recorded (`cmds_offset`, `cmds_len`,
    `cmds_meta`), and its arguments too (`cmds_args`; what the method returns, if that is a tuple), which keeps alive
    what the command uses. A command built of other commands counts as one. A method that raises leaves the queue as it
    was.
    """
    name = getattr(method, "__name__", "command")

    @functools.wraps(method)
    def command(self: Q, *args: P.args, **kwargs: P.kwargs) -> Q:
        if self._building:
            method(self, *args, **kwargs)
            return self
        process.check(self._generation, "this queue")
        if self.binded_device is not None:
            raise RuntimeError(f"{name}: this queue is bound to {self.binded_device.dname} and takes no more commands")
        start = len(self.q)
        self._building = True
        try:
            used = method(self, *args, **kwargs)
        except BaseException:
            del self.q[start:]
            raise
        finally:
            self._building = False
        self.cmds_offset.append(start)
        self.cmds_len.append(len(self.q) - start)
        self.cmds_meta.append(name)
        self.cmds_args.append(used if isinstance(used, tuple) else (*args, *kwargs.values()))
        return self

    return command  # type: ignore[return-value]  # mypy: named self


class HWCommandQueue:
    """What compute and copy queues have in common. A driver subclasses HWComputeQueue and HWCopyQueue.

    It overrides `_signal`, `_wait`, `_timestamp`, and `_submit`; `_bind` and `_patch` (or the `_update_*`) where it can
    do better than the defaults. `self.q` is its list of words, whatever a word is. Nothing needs to be called from a
    subclass's `__init__`.

    A queue object belongs to one thread at a time; submits of different objects may come from any threads.
    """

    if not TYPE_CHECKING:
        __slots__ = ()  # a native type may come first among the bases, and brings its own layout

    lane_name: ClassVar[str] = ""
    """Which of a device's hardware queues takes this: submits with the same name run in order."""

    signal_bits: ClassVar[int] = 64
    """How many bits of a signal's value the queue sets and compares: 64 or 32."""

    lines: Mapping[int, int] = MappingProxyType({})
    """The user's lines (hcq.runtime.lines) by command, where they are known: of graphs."""

    q: list[Any]
    cmds_offset: list[int]
    cmds_len: list[int]
    cmds_meta: list[str]
    cmds_args: list[tuple[Any, ...]]
    binded_device: HCQCompiled | None
    _building: bool
    _generation: int
    copies_are: str
    _kept: list[Any]
    _submitted: tuple[Any, int] | None
    _superseded: list[tuple[tuple[Any, int], tuple[Any, ...]]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self.q, self.cmds_offset, self.cmds_len, self.cmds_meta, self.cmds_args = [], [], [], [], []
        self.binded_device = None
        self._building = False
        self._generation = process.generation
        self.copies_are = ""  # what traces call its copies; else by the device alone
        self._kept = []
        self._submitted = None  # (signal, value) that says the last submit is over
        self._superseded = []  # replaced arguments, with the submit that may still use them
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.submit is not HWCommandQueue.submit:
            # A queue that submits in its own way (a native one) waits for room by itself too.
            cls.try_submit = _submit_as_it_does  # type: ignore[method-assign]

    def __len__(self) -> int:
        """How many commands the queue holds."""
        process.check(self._generation, "this queue")
        return len(self.cmds_meta)

    @hcq_command
    def signal(self, signal: Any, value: int) -> tuple[Any, ...]:
        """Set `signal` to `value` once all commands before have finished, their writes visible."""
        used = check_signal(signal), check_value(value, self.signal_bits)
        self._signal(*used)
        return used

    @hcq_command
    def wait(self, signal: Any, value: int) -> tuple[Any, ...]:
        """Go on once `signal` is at least `value`, compared unsigned."""
        used = check_signal(signal), check_value(value, self.signal_bits)
        self._wait(*used)
        return used

    @hcq_command
    def timestamp(self, signal: Any) -> None:
        """Write the device's time into `signal.timestamp` once all commands before have finished."""
        self._timestamp(check_signal(signal))

    def update_signal(self, cmd_idx: int, signal: Any = None, value: int | None = None) -> Self:
        """Change what the signal command `cmd_idx` (from 0) sets in later submits; None keeps.

        Like every update: an earlier submit that still runs is not disturbed; RuntimeError for another kind of command,
        IndexError for one that isn't there.
        """
        old_signal, old_value = self._arguments(cmd_idx, "signal")
        new = (
            old_signal if signal is None else check_signal(signal),
            old_value if value is None else check_value(value, self.signal_bits),
        )
        self._update_signal(cmd_idx, signal, value)
        return self._replace(cmd_idx, new)

    def update_wait(self, cmd_idx: int, signal: Any = None, value: int | None = None) -> Self:
        """Change what the wait command `cmd_idx` waits for in later submits; None keeps."""
        old_signal, old_value = self._arguments(cmd_idx, "wait")
        new = (
            old_signal if signal is None else check_signal(signal),
            old_value if value is None else check_value(value, self.signal_bits),
        )
        self._update_wait(cmd_idx, signal, value)
        return self._replace(cmd_idx, new)

    def bind(self, dev: HCQCompiled) -> Self:
        """Move the commands into memory that `dev` reads itself, so that a submit copies nothing. No more can be added.

        Submits then go to `dev` only; updates work as before. Where the driver has nothing better, submits still copy.
        """
        self._check_device(dev)
        if self.binded_device is None:
            self._bind(dev)
            self.binded_device = dev
        return self

    def submit(self, dev: HCQCompiled) -> Self:
        """Queue the commands on `dev` and return; an empty queue does nothing. May be repeated, before they have run.

        What the commands use lives until the device has passed them; the queue object itself may be dropped. Where the
        hardware queue is full this waits for room, and after HCQ_TIMEOUT_MS raises SignalTimeout with nothing
        submitted. Raises DeviceLost on a lost device.
        """
        if not self.try_submit(dev):
            deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
            while not self.try_submit(dev):
                if time.monotonic() > deadline:
                    raise queue_full(dev, self.lane_name)
                time.sleep(_FULL_NAP)
        return self

    def try_submit(self, dev: HCQCompiled) -> bool:
        """submit, but False instead of waiting where the hardware queue has no room; then nothing was submitted."""
        self._check_device(dev)
        if not self.cmds_meta or (watch.active and watch.submit(dev, self)):
            return True
        position = dev.lane(self).publish(self)
        if position is None:
            return False
        self._submitted = position
        if watch.active:
            watch.submitted(dev, self)
        return True

    def keeps_words_bound(self) -> bool:
        """Whether the words of a bound queue stay in `self.q`, as they do unless the driver moves them."""
        return type(self)._bind is HWCommandQueue._bind

    def keep(self, *objects: Any) -> Self:
        """Keep `objects` alive as long as this queue and its submits, as what the commands name is by itself."""
        self._kept.extend(objects)
        return self

    # The driver's part. Arguments are checked.

    def _signal(self, signal: Any, value: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _signal")

    def _wait(self, signal: Any, value: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _wait")

    def _timestamp(self, signal: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _timestamp")

    def _submit(self, dev: Any) -> bool | None:
        """Hand the words of `self.q` (or what `_bind` made of them) to the device, in order, all or nothing.

        The words are copied: they are patched and cut off later. Returns False where there is no room just now. One
        thread at a time calls this for a device and lane.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _submit")

    def _bind(self, dev: Any) -> None:
        """Move the words into the device's memory. By default they stay, and each submit copies them."""

    def _update_signal(self, cmd_idx: int, signal: Any, value: int | None) -> None:
        self._encode_again(cmd_idx, self._signal, (signal, value))

    def _update_wait(self, cmd_idx: int, signal: Any, value: int | None) -> None:
        self._encode_again(cmd_idx, self._wait, (signal, value))

    def _patch(self, offset: int, words: Sequence[Any]) -> None:
        """Replace the words at `offset`, in later submits. A driver whose `_bind` moves them overrides this."""
        self.q[offset : offset + len(words)] = words

    # Helpers

    def _encode_again(self, cmd_idx: int, encode: Callable[..., None], changes: Sequence[Any]) -> None:
        # The default patch: make the command's words once more, with what changed, and put them in their place.
        old = self.cmds_args[cmd_idx]
        args = [old[i] if i >= len(changes) or changes[i] is None else changes[i] for i in range(len(old))]
        held, self.q = self.q, []
        try:
            encode(*args)
            words = self.q
        finally:
            self.q = held
        if len(words) != self.cmds_len[cmd_idx]:
            raise RuntimeError(
                f"{type(self).__name__}: {self.cmds_meta[cmd_idx]} made {self.cmds_len[cmd_idx]} words and now "
                f"{len(words)}: the driver must override _update_{self.cmds_meta[cmd_idx]}"
            )
        self._patch(self.cmds_offset[cmd_idx], words)

    def _arguments(self, cmd_idx: int, kind: str) -> tuple[Any, ...]:
        index = operator.index(cmd_idx)
        if not 0 <= index < len(self.cmds_meta):
            raise IndexError(f"no command {index}: this queue has {len(self.cmds_meta)}, counted from 0")
        if self.cmds_meta[index] != kind:
            raise RuntimeError(f"command {index} is {self.cmds_meta[index]}, not {kind}")
        process.check(self._generation, "this queue")
        return self.cmds_args[index]

    def _replace(self, cmd_idx: int, args: tuple[Any, ...]) -> Self:
        # A submit under way still uses what the old arguments name, and it holds this queue: keep them here until then.
        old, self.cmds_args[cmd_idx] = self.cmds_args[cmd_idx], args
        if self._submitted is not None:
            self._superseded = [entry for entry in self._superseded if entry[0][0].value < entry[0][1]]
            if self._submitted[0].value < self._submitted[1]:
                self._superseded.append((self._submitted, old))
        return self

    def _check_device(self, dev: HCQCompiled) -> None:
        process.check(self._generation, "this queue")
        if not hasattr(dev, "hw_compute_queue_t"):
            raise TypeError(f"expected a device with command queues, such as Device['CPU'], not {dev!r}")
        dev.check_usable()
        if not isinstance(self, tuple(t for t in (dev.hw_compute_queue_t, dev.hw_copy_queue_t) if t is not None)):
            raise TypeError(f"{dev.dname} takes queues of its own kinds, not a {type(self).__name__}")
        if self.binded_device is not None and self.binded_device is not dev:
            raise RuntimeError(f"this queue is bound to {self.binded_device.dname} and can't go to {dev.dname}")

    def __repr__(self) -> str:
        bound = f", bound to {self.binded_device.dname}" if self.binded_device is not None else ""
        return f"<{type(self).__name__}: {len(self)} commands{bound}>"


class HWComputeQueue(HWCommandQueue):
    """A queue that runs programs. A driver overrides `_exec` and `_memory_barrier` besides."""

    if not TYPE_CHECKING:
        __slots__ = ()

    lane_name = "COMPUTE"

    @hcq_command
    def memory_barrier(self) -> None:
        """Make writes by the host or a peer before this visible to the commands after it."""
        self._memory_barrier()

    @hcq_command
    def exec(self, prg: Any, kernargs: int, global_size: Any = None, local_size: Any = None) -> tuple[Any, ...]:
        """Run `prg` on the kernargs at the address `kernargs` (see HCQProgram.fill_kernargs), which must stay there.

        Sizes are work-groups and work-items per group; None means (1, 1, 1), 0 groups run nothing. Raises LaunchError.
        """
        used = prg, _address("kernargs", kernargs), *launch.check_sizes(global_size, local_size, _limits(prg))
        self._exec(*used)
        return used

    def update_exec(self, cmd_idx: int, global_size: Any = None, local_size: Any = None) -> Self:
        """Change the sizes of the exec command `cmd_idx` in later submits; None keeps."""
        prg, kernargs, groups, items = self._arguments(cmd_idx, "exec")
        groups, items = launch.check_sizes(
            groups if global_size is None else global_size, items if local_size is None else local_size, _limits(prg)
        )
        self._update_exec(cmd_idx, None if global_size is None else groups, None if local_size is None else items)
        return self._replace(cmd_idx, (prg, kernargs, groups, items))

    def _memory_barrier(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _memory_barrier")

    def _exec(self, prg: Any, kernargs: int, global_size: launch.Dims, local_size: launch.Dims) -> None:
        """Append a launch. With 0 groups it must run nothing, and its sizes can be patched later all the same."""
        raise NotImplementedError(f"{type(self).__name__} has no _exec")

    def _update_exec(self, cmd_idx: int, global_size: launch.Dims | None, local_size: launch.Dims | None) -> None:
        self._encode_again(cmd_idx, self._exec, (None, None, global_size, local_size))


class HWCopyQueue(HWCommandQueue):
    """A queue that copies memory. A driver overrides `_copy` besides."""

    if not TYPE_CHECKING:
        __slots__ = ()

    lane_name = "COPY"

    @hcq_command
    def copy(self, dest: int, src: int, nbytes: int) -> tuple[Any, ...]:
        """Copy `nbytes` bytes between addresses that the device reaches and that don't overlap. 0 bytes is nothing."""
        count = operator.index(nbytes)
        if count < 0:
            raise LaunchError(f"a copy of {count} bytes: expected 0 or more")
        used = _address("dest", dest), _address("src", src), count
        if count:
            self._copy(*used)
        return used

    def update_copy(self, cmd_idx: int, dest: int | None = None, src: int | None = None) -> Self:
        """Change the addresses of the copy command `cmd_idx` in later submits; None keeps."""
        old_dest, old_src, count = self._arguments(cmd_idx, "copy")
        new = (
            old_dest if dest is None else _address("dest", dest),
            old_src if src is None else _address("src", src),
            count,
        )
        if count:
            self._update_copy(cmd_idx, dest, src)
        return self._replace(cmd_idx, new)

    def _copy(self, dest: int, src: int, nbytes: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _copy")

    def _update_copy(self, cmd_idx: int, dest: int | None, src: int | None) -> None:
        self._encode_again(cmd_idx, self._copy, (dest, src))


def queue_full(dev: Any, lane_name: str) -> SignalTimeout:
    """The error for a submit that found no room until its deadline."""
    standing = "; ".join(faults.standing(dev)) or "it runs earlier commands"
    full = f"the {lane_name} queue of {dev.dname} was full for {config.TIMEOUT_MS()} ms, nothing was submitted"
    return SignalTimeout(report.explained(f"{full}: {standing}"))


def _submit_as_it_does(self: HWCommandQueue, dev: HCQCompiled) -> bool:
    self.submit(dev)
    return True


def _limits(prg: Any) -> Any:
    device = getattr(prg, "device", None)
    if device is None or not hasattr(device, "limits"):
        raise LaunchError(f"{prg!r} is no program of a device with command queues: dev.runtime(name, lib) makes them")
    return device.limits


def _address(what: str, address: Any) -> int:
    try:
        number = operator.index(address)
    except TypeError:
        raise LaunchError(f"{what} is {address!r}: expected an address, such as buf._buf.va_addr") from None
    if not 0 <= number < 2**64:
        raise LaunchError(f"{what} is {number}: not an address")
    return number
