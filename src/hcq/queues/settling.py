"""Waiting until devices are idle or stand at waits, for whoever looks at what they did. It consumes no error.

What does not live here: waiting for a signal or a device on behalf of the user (awaiting, device.synchronize).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.queues import faults
from hcq.queues.device import HCQCompiled

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK = 0.0002  # seconds between looks at devices that are still at work
_STANDING = 100  # looks in a row without anything running after which the rest is taken to wait for somebody


def settled(each: Callable[[Any], object] = lambda device: None, patience: float = math.inf) -> list[Any]:
    """The open devices, once they are idle or stand at waits; `each` is called with each device after each look, so
    that it sees all that the last look found over.

    Blocks while devices work, for `patience` seconds at most.
    """
    standing, deadline = 0, time.monotonic() + patience
    while standing < _STANDING:
        devices = list(HCQCompiled.devices)
        busy = [dev for dev in devices if has_work(dev)]
        for dev in devices:
            each(dev)
        if not busy:
            return devices
        if time.monotonic() > deadline:
            break
        standing = 0 if any(_runs(dev) for dev in busy) else standing + 1
        time.sleep(_LOOK)
    return devices


def has_work(dev: Any) -> bool:
    """Whether something that was queued on a device may still run."""
    if isinstance(dev, _native.CommandDevice):
        return not dev._fault and dev.busy()
    return dev.lost is None and bool(dev._unfinished())


def _runs(dev: Any) -> bool:
    if isinstance(dev, _native.CommandDevice):
        return bool(dev.running())
    return not faults.standing(dev)
