"""Devices that a test left standing: made lost and closed, so that the next test opens a fresh one.

What does not live here: when a test counts as failed, and who asks (plugin, and the hooks of whoever runs tests).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hcq import config
from hcq.errors import SignalTimeout
from hcq.runtime.registry import Device

PATIENCE_MS = 1000


def lose(device: Any, why: str = "a test left a queue standing at a wait") -> None:
    """Make a device lost, whose queues then drop what they hold and whose waiters are told. Others are let be."""
    if hasattr(device, "_lose"):
        device._lose("the tests", why, 0)
    elif hasattr(device, "lose"):
        device.lose(why)


def discard(device: Any) -> None:
    """Close a device, also one that stands at a wait that nobody ends. Blocks for the time-out."""
    try:
        device.close()
    except SignalTimeout:
        lose(device)
        device.close()


def settle(device: Any) -> None:
    """Wait for what is queued on a device; close one that can't finish. Blocks, for the time-out at most."""
    if not _rests(device):
        device.close()


def lose_restless() -> list[Any]:
    """The open devices that don't come to rest within a second or so, each lost now; those that were lost are among
    them. Blocks."""
    from hcq.queues.device import HCQCompiled

    devices = {id(device): device for device in [*Device._opened.values(), *HCQCompiled.devices]}
    with _short_waits():
        return [device for device in devices.values() if not _rests(device)]


def close(devices: Iterable[Any]) -> list[str]:
    """Close these and forget them, whatever they say to it; their names. Blocks for a second or so each."""
    return [_close(device) for device in {id(device): device for device in devices}.values()]


def _close(device: Any) -> str:
    try:
        with _short_waits():
            discard(device)
    except Exception as error:
        Device.forget(device)  # the next test opens a fresh one all the same
        return f"{device.dname} ({type(error).__name__}: {error})"
    return str(device.dname)


def _rests(device: Any) -> bool:
    """Whether a device finishes what is queued; else it is lost."""
    try:
        device.synchronize()
    except Exception:
        lose(device)
        return False
    return True


@contextmanager
def _short_waits() -> Iterator[None]:
    names = config.TIMEOUT_MS.name, config.KERNEL_TIMEOUT_MS.name
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(PATIENCE_MS)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
