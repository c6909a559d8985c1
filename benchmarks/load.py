"""What else the machine was doing: the load average, and the share of the cores that others took during a row."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def busy_seconds() -> float:
    """CPU time that everything on this machine has used since it started, time stolen by other machines included."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(t) for t in first[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Others:
    """The share of all cores that processes other than ours used between two looks."""

    def __init__(self) -> None:
        self.time, self.busy, self.ours = 0.0, 0.0, 0.0

    def start(self, ours: float) -> None:
        self.time, self.busy, self.ours = time.monotonic(), busy_seconds(), ours

    def share(self, ours: float) -> float:
        passed = (time.monotonic() - self.time) * os.sysconf("SC_NPROCESSORS_ONLN")
        return max(0.0, min(1.0, (busy_seconds() - self.busy - (ours - self.ours)) / passed)) if passed > 0 else 0.0


def machine() -> dict[str, Any]:
    """What the figures were read on, without anything that names the machine."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "processor": model or platform.machine(),
        "cores": cores(),
        "memory GiB": round(memory, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
    }
