"""Blocks of quantised numbers as floating numbers: the same arithmetic as dequantize, as portable kernels.

What does not live here: which tensors, and where their bytes come from (convert).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hcq
from hcq.formats.blocks import BY_NAME
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

GROUP: Final = 256
"""Elements that a group makes."""


def dequantize(kind: str, out: Buffer, data: Buffer) -> None:
    """Queue the conversion of whole blocks of a type, the bytes `data`, to floating numbers in `out`, on its device."""
    # Processors run the items of a group one after the other: there an item makes a whole part, and its scale once.
    run = _PARTS[kind].size if Device[out.device].kernel_language in ("c", "llvm") else 1
    _kernel(kind, run)[-(-out.size // GROUP), GROUP // run](out, data, out.size)


@cache
def _kernel(kind: str, run: int) -> Any:
    block, part = BY_NAME[kind], _PARTS[kind]
    size, nbytes, part_size, scales, code = block.size, block.nbytes, part.size, part.scales, part.code

    @hcq.kernel
    def dequantize_blocks(out: hcq.ptr, data: hcq.ptr[hcq.u8], n: hcq.i32) -> None:
        first = hcq.global_id(0) * run
        if first < n:
            x = data + first // size * nbytes
            j = first % size
            scale, least = scales(x, j // part_size)
            for k in range(run):
                out[first + k] = scale * hcq.f32(code(x, j + k)) + least

    return dequantize_blocks


# In the kernel language, of the block that begins at x: the scale of a part and what is added; element j before that.


def _half(x: Any, at: Any) -> Any:
    return hcq.f32(hcq.bitcast(hcq.u16(x[at]) | (hcq.u16(x[at + 1]) << 8), hcq.f16))


def _one_scale(x: Any, part: Any) -> Any:
    return _half(x, 0), -0.0  # which changes nothing that it is added to


def _scale_and_least(x: Any, part: Any) -> Any:
    return _half(x, 0), _half(x, 2)


def _six_bits(x: Any, part: Any) -> Any:
    """Scale and minimum of a part of Q4_K or Q5_K: six bits each, in twelve bytes."""
    first, second = hcq.i32(x[4 + part % 4]), hcq.i32(x[8 + part % 4])
    if part < 4:
        scale, least = first & 63, second & 63
    else:
        both = hcq.i32(x[8 + part])
        scale, least = (both & 15) | (first >> 6 << 4), (both >> 4) | (second >> 6 << 4)
    return _half(x, 0) * hcq.f32(scale), -(_half(x, 2) * hcq.f32(least))


def _signed_scale(x: Any, part: Any) -> Any:
    return _half(x, 208) * hcq.f32(hcq.bitcast(x[192 + part], hcq.i8)), -0.0


def _nibble(x: Any, at: Any, j: Any) -> Any:
    return (hcq.i32(x[at + j % 16]) >> (j // 16 * 4)) & 15


def _fifth(x: Any, at: Any, j: Any) -> Any:
    return ((hcq.i32(x[at + j // 8]) >> (j % 8)) & 1) << 4


def _q8_0(x: Any, j: Any) -> Any:
    return hcq.bitcast(x[2 + j], hcq.i8)


def _q4_0(x: Any, j: Any) -> Any:
    return _nibble(x, 2, j) - 8


def _q4_1(x: Any, j: Any) -> Any:
    return _nibble(x, 4, j)


def _q5_0(x: Any, j: Any) -> Any:
    return (_nibble(x, 6, j) | _fifth(x, 2, j)) - 16


def _q5_1(x: Any, j: Any) -> Any:
    return _nibble(x, 8, j) | _fifth(x, 4, j)


def _q4_k(x: Any, j: Any) -> Any:
    return (hcq.i32(x[16 + j // 64 * 32 + j % 32]) >> (j // 32 % 2 * 4)) & 15


def _q5_k(x: Any, j: Any) -> Any:
    low = (hcq.i32(x[48 + j // 64 * 32 + j % 32]) >> (j // 32 % 2 * 4)) & 15
    return low | (((hcq.i32(x[16 + j % 32]) >> (j // 32)) & 1) << 4)


def _q6_k(x: Any, j: Any) -> Any:
    half, quarter = j // 128, j // 32 % 4
    low = (hcq.i32(x[half * 64 + quarter % 2 * 32 + j % 32]) >> (quarter // 2 * 4)) & 15
    high = (hcq.i32(x[128 + half * 32 + j % 32]) >> (quarter * 2)) & 3
    return (low | (high << 4)) - 32


class _Part(NamedTuple):
    """How the elements of a type are made: `size` of them in a row have one scale."""

    size: int
    scales: Callable[[Any, Any], Any]
    code: Callable[[Any, Any], Any]


_PARTS: dict[str, _Part] = {
    "Q8_0": _Part(32, _one_scale, _q8_0),
    "Q4_0": _Part(32, _one_scale, _q4_0),
    "Q4_1": _Part(32, _scale_and_least, _q4_1),
    "Q5_0": _Part(32, _one_scale, _q5_0),
    "Q5_1": _Part(32, _scale_and_least, _q5_1),
    "Q4_K": _Part(32, _six_bits, _q4_k),
    "Q5_K": _Part(32, _six_bits, _q5_k),
    "Q6_K": _Part(16, _signed_scale, _q6_k),
}
