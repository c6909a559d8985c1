"""Files of tensors, written by hand, so that tests can write wrong ones too."""

import json
import struct

import numpy as np


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
