"""What tests of files of tensors share: files written by hand, also wrong ones, tensors of all types, and devices."""

import contextlib
import json
import struct

import ml_dtypes
import numpy as np
from memory_devices import FarDevice, opened

DEVICES = ("CLANG", "LLVM", "far")
"""Two whose memory the host reaches, and one where it doesn't."""


@contextlib.contextmanager
def opened_device(name):
    """The name of a device of DEVICES."""
    if name != "far":
        yield name
        return
    with opened(FarDevice) as far:
        yield far


def safetensors(header, data=b"", length=None):
    """A safetensors file with a header of any kind: a dict, text, or bytes as they are."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def field(dtype, shape, begin, end):
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    """A key of GGUF and its value, whose bytes are given."""
    return text(key) + struct.pack("<I", kind) + value


def array(kind, values, count=None):
    return struct.pack("<IQ", kind, len(values) if count is None else count) + b"".join(values)


def tensor(name, shape, kind, offset):
    """The description of a tensor; `shape` is the outermost dimension first, as in C."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def gguf(pairs=(), tensors=(), data=b"", version=3, counts=None, alignment=32):
    """A GGUF file of pairs and tensors, and the data behind them, aligned."""
    number, keys = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, number, keys) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data if tensors else head


def noise(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


EVERYTHING = {
    "bool": np.array([True, False, True]),
    "i8": np.arange(-3, 4, dtype=np.int8),
    "u8": noise(5),
    "i16": np.arange(6, dtype=np.int16).reshape(2, 3),
    "u16": np.arange(6, dtype=np.uint16),
    "i32": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    "u32": np.arange(5, dtype=np.uint32),
    "i64": np.arange(5),
    "u64": np.arange(7, dtype=np.uint64),
    "f16": np.linspace(0, 1, 9).astype(np.float16),
    "bf16": np.linspace(0, 1, 9).astype(ml_dtypes.bfloat16),
    "f8a": np.linspace(0, 1, 9).astype(ml_dtypes.float8_e4m3fn),
    "f8b": np.linspace(0, 1, 9).astype(ml_dtypes.float8_e5m2),
    "f32": np.linspace(0, 1, 9, dtype=np.float32),
    "f64": np.linspace(0, 1, 9),
    "scalar": np.array(3.5, np.float32),
    "nothing": np.empty((0, 3), np.float32),
    "large": noise(3_000_001, 1),
}


def same(loaded, expected):
    assert list(loaded) and set(loaded) == set(expected)
    for name, array_ in expected.items():
        got = loaded[name].numpy()
        assert got.dtype == array_.dtype and got.shape == array_.shape and got.tobytes() == array_.tobytes(), name
