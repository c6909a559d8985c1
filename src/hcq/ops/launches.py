"""How operations are launched on what kind of device: results never depend on it.

What does not live here: kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

GROUP: Final = 256
"""Work-items of a group where nothing asks for another number."""
LARGE: Final = 1024
"""The same on processors, where a group's own cost counts: some 20 ns, as much as 200 additions."""


def on_processor(x: Buffer) -> bool:
    """Whether the device of `x` is a processor, which runs one item of a group after the other, or some as lanes."""
    from hcq.runtime.registry import Device

    return Device[x.device].kernel_language in ("c", "llvm")


def group_for(x: Buffer, count: int) -> int:
    """Work-items of a group that share out `count` independent elements of an array like `x`."""
    return LARGE if count >= LARGE and on_processor(x) else GROUP
