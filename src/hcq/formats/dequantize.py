"""Blocks of quantised numbers as float32, by NumPy: for devices that run no portable kernels.

Follows ggml's block structures (ggml-common.h) and reference dequantisation, operation by operation, in float32. What
does not live here: which tensors, and where their bytes come from (convert).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def _half(blocks: Bytes, at: int) -> Floats:
    """The half at byte `at` of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(codes: Bytes) -> Bytes:
    """The low halves of the bytes of each block, then the high ones."""
    return np.concatenate([codes & 0xF, codes >> 4], axis=-1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """The 32 bits at byte `at` of each block, at the place of the fifth bit of a number."""
    return np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little") << np.uint8(4)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8))


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (codes.astype(np.float32) - np.float32(16))


def _q5_1(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * codes.astype(np.float32) + _half(blocks, 2)


def _scales(blocks: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima of the eight parts of each block of Q4_K or Q5_K: six bits each, in twelve bytes."""
    low, middle, high = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
    least = np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=1)
    return _half(blocks, 0) * scale.astype(np.float32), _half(blocks, 2) * least.astype(np.float32)


def _q4_k(blocks: Bytes) -> Floats:
    scale, least = _scales(blocks)
    codes = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (scale[:, :, None] * codes.astype(np.float32) - least[:, :, None]).reshape(len(blocks), 256)


def _q5_k(blocks: Bytes) -> Floats:
    scale, least = _scales(blocks)
    codes = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    part = np.arange(8, dtype=np.uint8)[None, :, None]
    fifths = (blocks[:, None, 16:48] >> part & 1) << np.uint8(4)
    return (scale[:, :, None] * (codes | fifths).astype(np.float32) - least[:, :, None]).reshape(len(blocks), 256)


def _q6_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    pair = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> pair & 3
    codes = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[:, :, None] * codes.reshape(-1, 16, 16)).reshape(len(blocks), 256)


_BLOCKS: dict[str, Callable[[Bytes], Floats]] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


def blocks_to_floats(kind: str, data: Any, block_bytes: int) -> Floats:
    """The elements of whole blocks of one of those types, whose bytes are `data`, as float32 in one dimension.

    Scales that are not finite give elements that are not.
    """
    blocks = np.frombuffer(data, np.uint8).reshape(-1, block_bytes)
    with np.errstate(invalid="ignore", over="ignore"):
        return _BLOCKS[kind](blocks).reshape(-1)
