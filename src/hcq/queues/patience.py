"""How long a host thread waits for a device before it says that something is wrong, and what it says then.

What does not live here: the waiting itself (device, signal), and what native devices do (native/python/device_wait).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hcq import config
from hcq.errors import SignalTimeout
from hcq.queues import faults, report

if TYPE_CHECKING:
    from hcq.queues.device import HCQCompiled


class Patience:
    """How long a host thread waits for a device: HCQ_TIMEOUT_MS while a queue stands at a wait, which is no failure;
    HCQ_KERNEL_TIMEOUT_MS while nothing but a command runs. Progress is seen submit by submit.
    """

    def __init__(self, device: HCQCompiled) -> None:
        self.device = device
        self.limit = config.KERNEL_TIMEOUT_MS() / 1000
        self.deadline = time.monotonic() + config.TIMEOUT_MS() / 1000
        self.started = time.monotonic()
        self.seen = self._progress()

    def slice_ms(self) -> float:
        """Milliseconds to wait before the next look at what the queues do."""
        until = min(self.deadline, self.started + self.limit) if self.limit else self.deadline
        return max(1.0, (until - time.monotonic()) * 1000)

    def ran_out(self, error: SignalTimeout) -> None:
        """Raise what the end of a slice means, if anything."""
        now, device = time.monotonic(), self.device
        at_waits = faults.standing(device)
        if at_waits or not device._unfinished():
            if now >= self.deadline:
                if not at_waits:
                    raise SignalTimeout(str(error)) from error
                said = f"{device.dname} did not become idle: {'; '.join(at_waits)}"
                raise SignalTimeout(report.explained(said)) from error
            self.started = now
            return
        progress = self._progress()
        if progress != self.seen:
            self.seen, self.started = progress, now
        elif self.limit and now - self.started >= self.limit:
            device.lose(f"a command ran for more than {self.limit:g} s", faults.running(device))
            device.check_usable()
        self.deadline = max(self.deadline, now + config.TIMEOUT_MS() / 1000)

    def _progress(self) -> list[int]:
        return [lane.signal.value for lane in self.device.lanes]
