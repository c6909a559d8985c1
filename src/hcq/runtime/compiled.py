"""Compiled: what every opened device is, whatever it runs on. Plain Python, made to be subclassed by drivers.

What does not live here: finding and opening devices (registry), and what only devices with command queues have
(hcq.queues.device).
"""

from __future__ import annotations

import contextlib
import threading
import time
import types
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hcq.errors import DeviceLost, InvalidProgram
from hcq.runtime import process
from hcq.runtime.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_HOSTS_SECONDS = 5.0


class DeviceLimits(NamedTuple):
    """The largest things a device takes. Tuples are (x, y, z), sizes and alignments bytes; None: no limit known."""

    max_group_size: tuple[int, int, int] = (1024, 1024, 1024)
    max_groups: tuple[int, int, int] = (2**31 - 1, 2**31 - 1, 2**31 - 1)
    max_group_items: int = 1024
    local_memory_bytes: int = 0
    max_buffer_bytes: int | None = None
    buffer_alignment: int = 1
    view_alignment: int = 1
    max_argument_bytes: int = 4096


class Compiled:
    """An opened device: a name, an allocator, a compiler, and a runtime that makes programs out of libraries.

    `allocator`, `renderer`, `compiler`, `runtime` and `graph` are plain attributes: clients replace them, and everyone
    looks them up when using them. `runtime(name, lib)` gives a program; a device that runs nothing has None there.

    A driver's factory returns an instance. It overrides `synchronize`, `_close`, `_info`, `limits` as needed, and sets

    - `survives_fork`: the device goes on working in a forked child (it owns no queues, threads or driver state);
    - `kernel_language`: what its compiler takes portable kernels in ("c", "llvm", "opencl", ...); None: it runs none.
    - `most_rounds`: after how many rounds of an item's loops it ends them, right or wrong; None: it doesn't.
    - `is_cpu_implementation`: a GPU interface that is implemented on the host CPU, never chosen as a default.
    - `dlpack_device`: how DLPack names its memory, (type, number), where others use that by address; and then
      `home_of(address)`, the name of the device whose memory that is, and `settle()`, which waits for others' work.

    Threads may share a device. In a forked child any use of an inherited device raises ForkedDeviceError.
    """

    survives_fork: ClassVar[bool] = False
    is_cpu_implementation: bool = False
    most_rounds: int | None = None
    dlpack_device: tuple[int, int] | None = None
    kernel_language: str | None = None
    _inherited: ClassVar[bool] = False
    limits: DeviceLimits = DeviceLimits()

    dname: str
    allocator: Any
    renderer: Any
    compiler: Any
    runtime: Any
    graph: Any
    closed: bool

    def __init__(
        self,
        device: str,
        allocator: Any,
        renderer: Any = None,
        compiler: Compiler | None = None,
        runtime: Callable[..., Any] | None = None,
        graph: Any = None,
    ) -> None:
        self.dname = device
        self.allocator = allocator
        self.renderer = renderer
        self.compiler = Compiler() if compiler is None else compiler
        self.runtime = runtime
        self.graph = graph
        self.closed = False
        self._generation = process.generation
        self._close_lock = threading.RLock()
        self._hosts: deque[None] = deque()  # one for each thread that is at the memory
        _live.add(weakref.ref(self, _live.discard))

    def synchronize(self) -> None:
        """Return when all that was queued has finished; raise what failed. Blocks; here nothing is queued."""
        self.check_usable()

    def check_usable(self) -> None:
        """Raise ForkedDeviceError in a forked child, RuntimeError once the device is closed. Costs two comparisons."""
        if self._generation != process.generation and not self.survives_fork:
            raise process.forked(self._generation, self.dname)
        if self.closed:
            raise RuntimeError(f"{self.dname} is closed: Device[{self.dname!r}] opens it anew")

    def program(self, name: str, src: str | bytes) -> Any:
        """Compile `src` (through the cache) and load the function `name` from it: compile_cached and runtime in one.

        Raises CompileError where the compiler refuses, InvalidProgram where the function is missing.
        """
        self.check_usable()
        runtime = self.runtime
        if runtime is None:
            raise InvalidProgram(f"{self.dname} runs no programs: it only holds data to copy from or to")
        program = runtime(name, self.compiler.compile_cached(src))
        if not hasattr(program, "source") and hasattr(program, "__dict__"):
            program.source = src  # for graphs that are saved
        return program

    @property
    def info(self) -> Mapping[str, object]:
        """What this device is, in words and numbers: name, driver, limits, and whatever the driver adds."""
        module = type(self).__module__
        driver = module.removeprefix("hcq.drivers.").partition(".")[0] if module.startswith("hcq.drivers.") else module
        facts: dict[str, object] = {"name": self.dname, "driver": driver}
        facts.update(self._info())
        facts["limits"] = self.limits._asdict()
        return facts

    def close(self) -> None:
        """Wait for what is queued, free what the device holds, and forget it; `Device[name]` then opens it anew.

        May be repeated, and works on a lost device. Buffers of a closed device raise when used. Where the wait times
        out (SignalTimeout) the device stays open. Blocks.
        """
        if self._generation != process.generation and not self.survives_fork:
            raise process.forked(self._generation, self.dname)
        with self._close_lock:
            if self.closed:
                return
            try:
                self.synchronize()
            except DeviceLost:
                pass  # closing is how a lost device is left; what failed was for its waiters to see
            from hcq.runtime.registry import Device

            self.closed = True
            allocator = self.allocator
            mine = getattr(allocator, "device", None) is self
            try:
                self._await_hosts()
                if Device._opened.get(self.dname) is self:  # else buffers of this name are another device's
                    from hcq._native import close_buffers

                    close_buffers(self.dname)
                if mine and hasattr(allocator, "close"):
                    allocator.close()  # its cache goes while the driver still has the memory
                self._close()
            finally:
                Device.forget(self)

    @contextlib.contextmanager
    def at_memory(self) -> Iterator[None]:
        """While it lasts the device's memory stays where it is, for a thread of the host that is at it: closing waits.
        Raises where the device is closed."""
        self._hosts.append(None)  # before the look: closing sets `closed` before it looks here
        try:
            if self.closed:
                self.check_usable()
            yield
        finally:
            self._hosts.pop()

    def _await_hosts(self) -> None:
        # At most for a while: a finalizer may close a device in the midst of its own thread's copy.
        deadline = time.monotonic() + _HOSTS_SECONDS
        while self._hosts and time.monotonic() < deadline:
            time.sleep(0.0001)

    def _close(self) -> None:
        """A driver's own part of close: end threads, close descriptors. Called once, after buffers and cache went."""

    def _info(self) -> Mapping[str, object]:
        """A driver's own part of `info`."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dname}{' (closed)' if self.closed else ''}>"


def _inherited_class(cls: type[Compiled]) -> type[Compiled]:
    """What devices of class `cls` become in a forked child: every touch raises ForkedDeviceError.

    A subclass that adds no fields, so that an object's class can be changed to it whatever its layout. That costs the
    parent's and the child's own devices nothing; a check in each method would, and could not see plain attributes read.
    """

    def refuse(self: Compiled, *_: object) -> Any:
        facts = object.__getattribute__(self, "__dict__")
        raise process.forked(facts["_generation"], facts["dname"])

    def describe(self: Compiled) -> str:
        facts = object.__getattribute__(self, "__dict__")
        return f"<{facts['dname']} of process {process.pids[facts['_generation']]}, inherited through fork>"

    def finalize(self: Compiled) -> None:
        pass

    body = {"__slots__": (), "__module__": __name__, "__repr__": describe, "__del__": finalize, "_inherited": True}
    body.update(__getattribute__=refuse, __setattr__=refuse, __delattr__=refuse)
    return types.new_class("Inherited" + cls.__name__, (cls,), exec_body=lambda namespace: namespace.update(body))


# Every device made in this process, weakly, so that a forked child can mark what it inherited.
_live: set[weakref.ref[Compiled]] = set()

# Inherited devices live for ever in the child: their finalizers must not touch what belongs to the parent.
_kept: list[object] = []


def _mark_inherited() -> None:
    for device in [device for ref in list(_live) if (device := ref()) is not None]:
        if type(device)._inherited:
            continue  # by our parent already
        if device.survives_fork:
            device._close_lock = threading.RLock()  # another thread of the parent may have held it
            continue
        _kept.append((device, dict(vars(device))))
        try:
            device.__class__ = _inherited_class(type(device))
        except TypeError:
            pass  # a class that won't be subclassed: its methods and native entries compare the generation


process.at_fork_in_child(_mark_inherited)
