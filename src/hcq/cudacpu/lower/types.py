"""Types of PTX as LLVM has them here: halves and packed values travel as integers of their width."""

from __future__ import annotations

_SPECIAL = {
    "pred": 1, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x2": 8,
    "e4m3": 8, "e5m2": 8,
}  # fmt: skip


def _widths() -> dict[str, int]:
    widths = dict(_SPECIAL)
    for letter, sizes in {
        "b": (8, 16, 32, 64, 128),
        "u": (8, 16, 32, 64),
        "s": (8, 16, 32, 64),
        "f": (16, 32, 64),
    }.items():
        widths.update({f"{letter}{size}": size for size in sizes})
    widths.update({"bf16": 16, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "u16x2": 32, "s16x2": 32})
    return widths


WIDTHS: dict[str, int] = _widths()


def is_type(modifier: str) -> bool:
    """Whether a modifier is a type."""
    return modifier in WIDTHS


def width(type: str) -> int:
    """Bits of a type; 1 for pred."""
    return WIDTHS[type]


def size(type: str) -> int:
    """Bytes of a type in memory."""
    return max(WIDTHS[type] // 8, 1)


def llvm(type: str) -> str:
    """LLVM's type for values of a type: float, double, or an integer of its width."""
    if type == "f32":
        return "float"
    return "double" if type == "f64" else f"i{WIDTHS[type]}"


def bits_of(llvm_type: str) -> int:
    """Bits of such a type of LLVM's."""
    return {"float": 32, "double": 64}.get(llvm_type) or int(llvm_type[1:])


def signed(type: str) -> bool:
    """Whether an integer of this type is extended by its sign."""
    return type[0] == "s"
