"""Device: the registry that finds, opens, names and forgets devices.

What does not live here: the table of built-in drivers (hcq.drivers), and what an opened device is (compiled).
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING

from hcq import config
from hcq.drivers import ALIASES, BUILTIN, DEFAULT_ORDER, GPU_INTERFACES, NO_DEFAULT
from hcq.errors import DeviceUnavailable, UnknownDevice
from hcq.runtime import process
from hcq.runtime.compiled import Compiled
from hcq.runtime.hardware import may_have_gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    Factory = Callable[[str], Compiled]

# Names canonicalised so far. Bounded, since a program may make up names; DISK paths are never kept.
_CANONICAL_LIMIT = 1024


class Registry:
    """The devices of this process, by name. `hcq.Device` is the one instance; any thread may use it.

    Opening a device is done under one lock, so that two threads never open one twice and drivers may open other devices
    while opening. A forked child starts with an empty registry.
    """

    def __init__(self) -> None:
        self._opened: dict[str, Compiled] = {}  # by canonical name; native code reads it, so it stays the same object
        self._registered: dict[str, Factory] = {}
        self._entry_points: dict[str, EntryPoint] | None = None
        self._canonical: dict[str, str] = {}
        self._cpu_name: str | None = None
        self._default: str | None = None
        self._asked_by = ""  # the variable that chose the default, as written: HCQ_DEVICE=CUDA
        self._exports: dict[
            str, str | None
        ] = {}  # variables that carry our default to child processes: their old values
        self._lock = threading.RLock()
        self._opening: list[str] = []
        process.at_fork_in_child(self._enter_child)

    def __repr__(self) -> str:
        is_open = ", ".join(self._opened) or "nothing"
        return f"<hcq.Device: {is_open} open, default {self._default or 'not decided yet'}>"

    # Names

    def canonicalize(self, name: str | None) -> str:
        """The one spelling of a device's name; None is the default device.

        Upper-cases what stands before the first `:` and drops an exact trailing `:0`; aliases give their target
        (`cpu:1` -> `CLANG:1`). DISK keeps all that follows its first colon. The name need not be known.
        """
        if name is None:
            return self.DEFAULT
        known = self._canonical.get(name)
        if known is not None:
            return known
        if not isinstance(name, str):
            raise TypeError(f"a device's name is a string such as 'CLANG' or 'CLANG:1', not {name!r}")
        head, colon, rest = name.partition(":")
        head = head.upper()
        if head == "DISK":
            return head + colon + rest
        head = self._target(head)
        canonical = (head + colon + rest).removesuffix(":0")
        if len(self._canonical) < _CANONICAL_LIMIT:
            self._canonical[name] = canonical
        return canonical

    @property
    def _devices(self) -> list[str]:
        """The known names, upper case: the built-in ones, then those that other packages and the program brought."""
        return list(dict.fromkeys([*BUILTIN, *self._found(), *self._registered]))

    def register(self, name: str, factory: Factory, replace: bool = False) -> None:
        """Make `factory(canonical_name) -> Compiled` the way to open devices called `name`.

        A taken name needs `replace=True`, also a built-in one; a name with an open device raises ValueError either way.
        """
        head = name.upper()
        if not head or ":" in head or head != head.strip():
            raise ValueError(f"{name!r} can't name a kind of device: expected a word without a colon, such as 'MYDEV'")
        if not callable(factory):
            raise TypeError(f"the factory of {head} must be callable with the device's name, not {factory!r}")
        with self._lock:
            if not replace and (head in self._devices or head in ALIASES or head == "CPU"):
                raise ValueError(f"the device name {head} is taken: choose another, or pass replace=True")
            is_open = [opened for opened in self._opened if opened.partition(":")[0] == self._target(head)]
            if is_open:
                raise ValueError(
                    f"{', '.join(is_open)} is open: Device.close({is_open[0]!r}) before replacing its driver"
                )
            self._registered[head] = factory
            self._canonical.clear()

    def unregister(self, name: str) -> None:
        """Undo `register`: forget the factory, so that a built-in device is what it was. Unknown names raise."""
        head = name.upper()
        with self._lock:
            if head not in self._registered:
                raise self._unknown(head, "it was not registered by this program")
            is_open = [opened for opened in self._opened if opened.partition(":")[0] == head]
            if is_open:
                raise ValueError(f"{', '.join(is_open)} is open: Device.close({is_open[0]!r}) first")
            del self._registered[head]
            self._canonical.clear()

    # Opening and closing

    def __getitem__(self, name: str | None) -> Compiled:
        """The opened device of this name, opened now if it isn't yet; the same object from every thread.

        Raises UnknownDevice (a KeyError) for a name nobody registered, DeviceUnavailable where the driver can't open
        here; anything else a driver raises is a bug of the driver. May block while a driver starts.
        """
        opened = self._opened.get(name) if name is not None else None
        return opened if opened is not None else self._open(self.canonicalize(name))

    def close(self, name: str | None) -> None:
        """Close the device if it is open: wait, free, forget (see Compiled.close). May be repeated. Blocks."""
        canonical = self.canonicalize(name)
        opened = self._opened.get(canonical)
        if opened is not None:
            opened.close()
        else:
            self._factory(canonical)  # a name that can't be open because there is no such device is a mistake

    def forget(self, device: Compiled) -> None:
        """Take a closed device out of the registry; Compiled.close calls it. Other devices stay."""
        with self._lock:
            for name in [name for name, opened in self._opened.items() if opened is device]:
                del self._opened[name]

    def let_go(self, name: str) -> None:
        """Forget a device, by its canonical name, without closing it: it goes with the last buffer on it. For names
        that only the caller uses: others would get a second device."""
        self._opened.pop(name, None)  # one step, and no lock: whoever asks meanwhile has it or opens it anew

    @property
    def opened(self) -> tuple[str, ...]:
        """The canonical names of the devices open now."""
        return tuple(self._opened)

    # The default device

    @property
    def DEFAULT(self) -> str:
        """The default device's name, decided at first use and kept: assigned, else HCQ_DEVICE, else a flag named like a
        device (`CUDA=1`), else the first device that opens. `del Device.DEFAULT` lets it be decided anew."""
        return self._default if self._default is not None else self._decide()

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        if name is None:
            raise TypeError("Device.DEFAULT is a name; `del Device.DEFAULT` lets it be decided anew")
        canonical = self.canonicalize(name)
        self._factory(canonical)
        with self._lock:
            self._default = canonical
            self._asked_by = ""
            self._export(config.DEVICE.name, canonical)

    @DEFAULT.deleter
    def DEFAULT(self) -> None:
        with self._lock:
            self._default = None
            self._asked_by = ""
            for variable, before in self._exports.items():
                if before is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = before
            self._exports.clear()

    @property
    def default(self) -> Compiled:
        """The default device, opened."""
        return self[self.DEFAULT]

    # Helpers

    def _open(self, name: str) -> Compiled:
        with self._lock:
            opened = self._opened.get(name)
            if opened is not None:
                return opened
            factory = self._factory(name)
            if name in self._opening:
                raise RuntimeError(f"the driver of {name} asks for Device[{name!r}] while opening it")
            self._opening.append(name)
            try:
                device = factory(name)
            except DeviceUnavailable as error:
                if name != self._default or not self._asked_by:
                    raise
                asked = f"{self._asked_by} makes {name} the default device, which can't be opened: {error.reason}"
                raise DeviceUnavailable(asked, error.hint) from error
            finally:
                self._opening.remove(name)
            if not isinstance(device, Compiled):
                raise TypeError(f"the factory of {name} must return an hcq.Compiled, not {type(device).__name__}")
            self._opened[name] = device
            from hcq.runtime import watch

            if watch.active:
                watch.opened(device)
            return device

    def _factory(self, name: str) -> Factory:
        """The factory for a canonical name: registered, else built in, else of another package; else UnknownDevice."""
        head = name.partition(":")[0]
        registered = self._registered.get(head)
        if registered is not None:
            return registered
        if head in BUILTIN:
            module, _, attribute = BUILTIN[head].partition(":")
            factory: Factory = getattr(import_module(module), attribute)
            return factory
        found = self._found().get(head)
        if found is not None:
            loaded: Factory = found.load()
            return loaded
        raise self._unknown(name)

    def check_known(self, name: str) -> None:
        """Raise UnknownDevice where no driver has this canonical name. Opens and imports nothing."""
        if name.partition(":")[0] not in self._devices:
            raise self._unknown(name)

    def _unknown(self, name: str, why: str = "no driver has this name") -> UnknownDevice:
        from difflib import get_close_matches

        head = name.partition(":")[0]
        known = [*self._devices, *ALIASES, "CPU"]
        near = get_close_matches(head, known, n=1, cutoff=0.7)  # below that, anything is near
        meant = f" Did you mean {near[0]!r}?" if near else ""
        return UnknownDevice(f"unknown device {name!r}: {why}.{meant} Known devices: {', '.join(sorted(known))}")

    def _found(self) -> dict[str, EntryPoint]:
        """Drivers of other packages, by upper-case name. Looked for once: looks into all packages."""
        if self._entry_points is None:
            from hcq.runtime.entry_points import installed

            found: dict[str, EntryPoint] = {}
            for point in installed():
                head = point.name.upper()
                if head in BUILTIN or head in ALIASES or head == "CPU" or head in found:
                    from hcq.runtime.logs import logger

                    logger("registry").warning("driver %s (%s) is ignored: the name is taken", head, point.value)
                    continue
                found[head] = point
            self._entry_points = found
        return self._entry_points

    def _target(self, head: str) -> str:
        """What an alias stands for; any other name is itself. A registered name is never an alias."""
        if head in self._registered:
            return head
        if head == "CPU":
            if self._cpu_name is None:
                self._cpu_name = "CLANG" if _has_c_compiler() else "LLVM"
            return self._cpu_name
        return ALIASES.get(head, head)

    def _decide(self) -> str:
        with self._lock:
            if self._default is None:
                self._default = self._named_default() or self._flagged_default() or self._first_that_opens()
            return self._default

    def _named_default(self) -> str | None:
        name = config.DEVICE()
        if name is None:
            return None
        canonical = self.canonicalize(name)
        try:
            self._factory(canonical)
        except UnknownDevice as error:
            raise UnknownDevice(f"{config.DEVICE.name}={name}: {error}") from None
        self._asked_by = f"{config.DEVICE.name}={name}"
        return canonical

    def _flagged_default(self) -> str | None:
        """The device whose flag is set to 1. Other packages are searched only where a flag might be theirs."""
        candidates = [*DEFAULT_ORDER, *self._registered, *BUILTIN, "CPU", *ALIASES]
        for head in candidates:
            if _flag(head) == "1" and head not in NO_DEFAULT:
                self._asked_by = f"{head}=1"
                return self._target(head)
        if any(value == "1" and name == name.upper() for name, value in os.environ.items()):
            for head in self._found():
                if _flag(head) == "1":
                    self._asked_by = f"{head}=1"
                    return head
        return None

    def _first_that_opens(self) -> str:
        reasons: list[str] = []
        left_out = {self._target(name): name for name in [*DEFAULT_ORDER, *ALIASES, "CPU"] if _flag(name) == "0"}
        for head in DEFAULT_ORDER:
            if head in left_out:
                reasons.append(f"{head}: left out by {left_out[head]}=0")
                continue
            if head in GPU_INTERFACES and head not in self._registered and not may_have_gpu():
                reasons.append(f"{head}: no GPU's file is in /dev; on the CPU it is only used when named")
                continue
            try:
                device = self._open(head)
            except DeviceUnavailable as error:
                reasons.append(f"{head}: {error}")
                continue
            if device.is_cpu_implementation:
                device.close()
                reasons.append(f"{head}: a GPU interface implemented on the CPU is only used when named")
                continue
            self._export(head, "1")
            return head
        raise DeviceUnavailable(
            reason="no device opens here:\n  " + "\n  ".join(reasons),
            hint="set HCQ_DEVICE to the name of a device, or install a driver",
        )

    def _export(self, variable: str, value: str) -> None:
        self._exports.setdefault(variable, os.environ.get(variable))
        os.environ[variable] = value

    def _enter_child(self) -> None:
        # Another thread of the parent may have held the lock, or been in the middle of opening.
        self._lock = threading.RLock()
        self._opening = []
        self._opened.clear()


def device_index(name: str) -> int:
    """The number in a canonical device name: 0 for `CLANG`, 2 for `CLANG:2`. For drivers whose devices are counted.

    Raises UnknownDevice where what follows the colon is no such number.
    """
    head, colon, rest = name.partition(":")
    if not colon:
        return 0
    if not (rest.isascii() and rest.isdecimal()) or (len(rest) > 1 and rest[0] == "0"):
        raise UnknownDevice(
            f"unknown device {name!r}: after {head}: stands the number of the device, a whole number without leading "
            f"zeros, such as {head}:1"
        )
    return int(rest)


def _flag(head: str) -> str:
    return (os.environ.get(head) or "").strip()


def _has_c_compiler() -> bool:
    try:
        from hcq.drivers.cpu.toolchain import find_c_compiler
    except ModuleNotFoundError:
        from importlib.util import find_spec
        from shutil import which

        return any(which(name) for name in ("clang", "gcc", "cc")) or find_spec("ziglang") is not None
    return find_c_compiler() is not None


Device = Registry()
"""The registry. `Device["CLANG"]` opens a device; `Device.DEFAULT` names the one meant when none is named."""
