"""Devices and signals of the runtime, under the keys by which the model knows them.

What does not live here: what they do (observer).
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native
from hcq.errors import DeviceLost
from hcq.queues.device import HCQCompiled
from hcq.queues.signal import HCQSignal
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hcq.validation.model import Model

_SWEEP = 4096  # signals that are kept before those that nobody uses any more are let go


class LaneKey(NamedTuple):
    """A hardware queue: `serial` tells devices apart that had the same name one after the other."""

    serial: int
    name: str

    def __str__(self) -> str:
        return f"the {self.name}"


class Lanes:
    """What the model calls one device: its hardware queues, and the signals that have been its timeline."""

    def __init__(self, device: Any, serial: int) -> None:
        self.device = weakref.ref(device)
        self.name: str = device.dname
        self.serial = serial
        self.native = isinstance(device, _native.CommandDevice)
        self.timelines: set[Hashable] = set()
        self.marks: set[Hashable] = set()  # of a driver in Python: the signals that its queues set behind each submit
        self.queues: set[LaneKey] = set()
        self.stream_waits: dict[Hashable, list[tuple[Any, int]]] = {}  # of streams in Python: for what comes next

    def key(self, name: str) -> LaneKey:
        """The hardware queue of that name."""
        key = LaneKey(self.serial, f"{self.name} {name}")
        self.queues.add(key)
        return key


class Book:
    """All devices and signals that have been seen."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._devices: dict[int, Lanes] = {}
        self._serials = itertools.count(1)
        self._signals: dict[Hashable, Any] = {}  # kept alive: their keys are addresses
        self._sweep_at = _SWEEP
        with watch.quiet():
            for device in HCQCompiled.devices:
                self.lanes(device)

    def lanes(self, device: Any, sets: Sequence[tuple[Any, int]] = ()) -> Lanes:
        """A device's entry, made where it is new. `sets` are what is being queued, so that it isn't taken for done."""
        known = self._devices.get(id(device))
        if known is None or known.device() is not device:
            known = self._devices[id(device)] = Lanes(device, next(self._serials))
        timeline = device.timeline_signal
        key = key_of(timeline)
        if key not in known.timelines:
            known.timelines.add(key)
            # What was queued before anybody looked is taken for done: nothing is known of it.
            base = min([device.timeline_value, *(value for signal, value in sets if key_of(signal) == key)]) - 1
            if key not in self._signals:
                self._signals[key] = timeline
                self._model.signal(key, f"the timeline of {known.name}", lambda: base)
        return known

    def signal(self, signal: Any, base: int | None = None) -> Hashable:
        """A signal's key; the model knows it from now on."""
        key = key_of(signal)
        if key not in self._signals:
            self._signals[key] = signal
            with watch.quiet():
                value = signal.value if base is None else base
            self._model.signal(key, name_of(signal), lambda: value)
        return key

    def known(self, signal: Any) -> Hashable | None:
        """A signal's key, if the model knows it."""
        key = key_of(signal)
        return key if key in self._signals else None

    def is_over(self, key: Hashable, value: int) -> bool:
        """Whether what sets a signal to `value` has ended, truly: it was set, or never will be."""
        with watch.quiet():
            signal = self._signals[key]
            if isinstance(signal, HCQSignal):
                try:
                    return bool(signal.is_reached(value))
                except DeviceLost:
                    return True
            # A stream's own: it has no more than the number, and goes past it even where the work failed.
            return bool(signal.value >= value or _native.signal_error(signal))

    def gone(self) -> list[Lanes]:
        """Devices that were closed, or nobody has any more. They are told of once."""
        gone = []
        for number, lanes in list(self._devices.items()):
            device = lanes.device()
            if device is None or device.closed:
                gone.append(lanes)
                del self._devices[number]
        return gone

    def is_drivers(self, key: Hashable) -> bool:
        """Whether threads of a driver in Python set it: as a timeline, a stream's signal, or a queue's mark."""
        return any(
            key in lanes.marks or (key in lanes.timelines and not lanes.native) for lanes in self._devices.values()
        )

    def timeline_of(self, key: Hashable) -> Any:
        """The device whose timeline a signal is now; None where it is none's."""
        for lanes in self._devices.values():
            device = lanes.device() if key in lanes.timelines else None
            if device is not None and key_of(device.timeline_signal) == key:
                return device
        return None

    def sweep(self) -> None:
        """Let go of signals that nothing is remembered of, now and then. Not in the middle of an event."""
        if len(self._signals) <= self._sweep_at:
            return
        used = self._model.machine.in_use()
        timelines = set().union(*(lanes.timelines for lanes in self._devices.values()))
        for key in [key for key in self._signals if key not in used and key not in timelines]:
            del self._signals[key]
            self._model.machine.signals.pop(key, None)
        self._sweep_at = max(_SWEEP, 2 * len(self._signals))


def key_of(signal: Any) -> Hashable:
    """The same for all objects that are one signal."""
    address = getattr(signal, "value_addr", None)
    return ("signal", address) if address is not None else ("object", id(signal))


def name_of(signal: Any) -> str:
    """A signal in words, without its value."""
    shown = repr(signal)
    number = shown.partition("#")[2].partition(" ")[0]
    return f"signal #{number}" if number else f"signal {shown}"
