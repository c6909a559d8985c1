"""The element types of GGUF: their numbers, how many elements a block has, and in how many bytes.

Follows ggml's `enum ggml_type` and its block structures. What does not live here: files (gguf), and turning blocks into
floating numbers (dequantize).
"""

from __future__ import annotations

from typing import NamedTuple

from hcq import dtypes
from hcq.dtypes import DType


class BlockType(NamedTuple):
    """`size` elements in `nbytes` bytes. `dtype` is None where elements can't be told apart without arithmetic."""

    name: str
    number: int
    size: int
    nbytes: int
    dtype: DType | None = None


TYPES = (
    BlockType("F32", 0, 1, 4, dtypes.float32),
    BlockType("F16", 1, 1, 2, dtypes.float16),
    BlockType("Q4_0", 2, 32, 18),
    BlockType("Q4_1", 3, 32, 20),
    BlockType("Q5_0", 6, 32, 22),
    BlockType("Q5_1", 7, 32, 24),
    BlockType("Q8_0", 8, 32, 34),
    BlockType("Q8_1", 9, 32, 36),  # of intermediate results: no file is known to have it
    BlockType("Q2_K", 10, 256, 84),
    BlockType("Q3_K", 11, 256, 110),
    BlockType("Q4_K", 12, 256, 144),
    BlockType("Q5_K", 13, 256, 176),
    BlockType("Q6_K", 14, 256, 210),
    BlockType("Q8_K", 15, 256, 292),
    BlockType("IQ2_XXS", 16, 256, 66),
    BlockType("IQ2_XS", 17, 256, 74),
    BlockType("IQ3_XXS", 18, 256, 98),
    BlockType("IQ1_S", 19, 256, 50),
    BlockType("IQ4_NL", 20, 32, 18),
    BlockType("IQ3_S", 21, 256, 110),
    BlockType("IQ2_S", 22, 256, 82),
    BlockType("IQ4_XS", 23, 256, 136),
    BlockType("I8", 24, 1, 1, dtypes.int8),
    BlockType("I16", 25, 1, 2, dtypes.int16),
    BlockType("I32", 26, 1, 4, dtypes.int32),
    BlockType("I64", 27, 1, 8, dtypes.int64),
    BlockType("F64", 28, 1, 8, dtypes.float64),
    BlockType("IQ1_M", 29, 256, 56),
    BlockType("BF16", 30, 1, 2, dtypes.bfloat16),
    BlockType("TQ1_0", 34, 256, 54),
    BlockType("TQ2_0", 35, 256, 66),
    BlockType("MXFP4", 39, 32, 17),
    BlockType("NVFP4", 40, 64, 36),
    BlockType("Q1_0", 41, 128, 18),
)

BY_NUMBER = {each.number: each for each in TYPES}
BY_NAME = {each.name: each for each in TYPES}
BY_DTYPE = {each.dtype: each for each in TYPES if each.dtype is not None}
