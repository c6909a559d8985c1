"""Blocks of quantised numbers as floating numbers: the same arithmetic as dequantize, as portable kernels.

A work-item makes one element. What does not live here: which tensors, and where their bytes come from (convert).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import hcq
from hcq.formats.blocks import BY_NAME

if TYPE_CHECKING:
    from hcq.runtime.buffer import Buffer

GROUP: Final = 256
"""Work-items of a group."""


def dequantize(kind: str, out: Buffer, data: Buffer) -> None:
    """Queue the conversion of whole blocks of a type, the bytes `data`, to floating numbers in `out`, on its device."""
    _kernel(kind)[-(-out.size // GROUP), GROUP](out, data, out.size)


@cache
def _kernel(kind: str) -> Any:
    known, element = BY_NAME[kind], _ELEMENTS[kind]
    size, nbytes = known.size, known.nbytes

    @hcq.kernel
    def dequantize_blocks(out: hcq.ptr, data: hcq.ptr[hcq.u8], n: hcq.i32) -> None:
        i = hcq.global_id(0)
        if i < n:
            out[i] = element(data + i // size * nbytes, i % size)

    return dequantize_blocks


# In the kernel language: element j of the block that begins at x.


def _half(x: Any, at: Any) -> Any:
    return hcq.f32(hcq.bitcast(hcq.u16(x[at]) | (hcq.u16(x[at + 1]) << 8), hcq.f16))


def _signed(x: Any, at: Any) -> Any:
    return hcq.f32(hcq.bitcast(x[at], hcq.i8))


def _nibble(x: Any, at: Any, j: Any) -> Any:
    return (hcq.i32(x[at + j % 16]) >> (j // 16 * 4)) & 15


def _fifth(x: Any, at: Any, j: Any) -> Any:
    return ((hcq.i32(x[at + j // 8]) >> (j % 8)) & 1) << 4


def _q8_0(x: Any, j: Any) -> Any:
    return _half(x, 0) * _signed(x, 2 + j)


def _q4_0(x: Any, j: Any) -> Any:
    return _half(x, 0) * hcq.f32(_nibble(x, 2, j) - 8)


def _q4_1(x: Any, j: Any) -> Any:
    return _half(x, 0) * hcq.f32(_nibble(x, 4, j)) + _half(x, 2)


def _q5_0(x: Any, j: Any) -> Any:
    return _half(x, 0) * hcq.f32((_nibble(x, 6, j) | _fifth(x, 2, j)) - 16)


def _q5_1(x: Any, j: Any) -> Any:
    return _half(x, 0) * hcq.f32(_nibble(x, 8, j) | _fifth(x, 4, j)) + _half(x, 2)


def _scaled(x: Any, part: Any, code: Any) -> Any:
    """A code of Q4_K or Q5_K, by the scale and minimum of its part: six bits each, in twelve bytes."""
    first, second = hcq.i32(x[4 + part % 4]), hcq.i32(x[8 + part % 4])
    if part < 4:
        scale, least = first & 63, second & 63
    else:
        both = hcq.i32(x[8 + part])
        scale, least = (both & 15) | (first >> 6 << 4), (both >> 4) | (second >> 6 << 4)
    return _half(x, 0) * hcq.f32(scale) * hcq.f32(code) - _half(x, 2) * hcq.f32(least)


def _q4_k(x: Any, j: Any) -> Any:
    part = j // 32
    return _scaled(x, part, (hcq.i32(x[16 + part // 2 * 32 + j % 32]) >> (part % 2 * 4)) & 15)


def _q5_k(x: Any, j: Any) -> Any:
    part = j // 32
    low = (hcq.i32(x[48 + part // 2 * 32 + j % 32]) >> (part % 2 * 4)) & 15
    return _scaled(x, part, low | (((hcq.i32(x[16 + j % 32]) >> part) & 1) << 4))


def _q6_k(x: Any, j: Any) -> Any:
    half, quarter = j // 128, j // 32 % 4
    low = (hcq.i32(x[half * 64 + quarter % 2 * 32 + j % 32]) >> (quarter // 2 * 4)) & 15
    high = (hcq.i32(x[128 + half * 32 + j % 32]) >> (quarter * 2)) & 3
    return _half(x, 208) * _signed(x, 192 + j // 16) * hcq.f32((low | (high << 4)) - 32)


_ELEMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
