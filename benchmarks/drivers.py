"""The rows of devices that stand on an interface of others, beside that interface itself."""

from __future__ import annotations

from benchmarks.row import STATED, Budget, Entry, Row

_EACH = "Vulkan, recorded each time"


def _vulkan(id: str, title: str, waits: bool, budget: Budget) -> Row:
    how = {"waits": waits}
    return Row(
        id,
        "launch",
        title,
        "us",
        (
            Entry("hcq", "vulkan_launch", "", how),
            Entry("hcq", "vulkan_launch", "prepared", {**how, "way": "prepared"}),
            Entry("hcq", "vulkan_launch", "bound queue", {**how, "way": "bound"}),
            Entry("raw", "vulkan_calls", _EACH, {**how, "once": False}),
            Entry("raw", "vulkan_calls", "Vulkan, recorded once", {**how, "once": True}),
        ),
        budget,
        most=2000,
        note="On lavapipe, where nothing faster is; from C what is raw.",
    )


ROWS: tuple[Row, ...] = (
    _vulkan("launch.vulkan", "prg(a) on VULKAN, queued, until the last has finished", False, STATED),
    _vulkan(
        "launch.vulkan_wait",
        "prg(a); dev.synchronize() on VULKAN",
        True,
        Budget("1.1 of Vulkan's own calls", 1.1, _EACH),
    ),
)
