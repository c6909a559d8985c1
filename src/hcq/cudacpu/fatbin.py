"""The PTX in what a module is loaded from: text, a fat binary as nvcc makes them, or what cuLink made.

What does not live here: the parser (ptx).
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from typing import NamedTuple

from hcq.errors import CompileError

_FAT = 0xBA55ED50
_LINKED = b"HCQLINK1"
_PTX, _ELF = 1, 2  # kinds of entries
_LZ4, _ZSTD = 0x2000, 0x8000  # flags of entries: how the payload is compressed
_HEAD = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes of the payload


class NoPtx(CompileError):
    """There is no PTX that the device could run; the message says what there is."""


class Entry(NamedTuple):
    """One entry of a fat binary: `capability` is 90 for sm_90."""

    kind: int
    capability: int
    flags: int
    payload: bytes  # without padding
    size: int  # when decompressed


def texts(data: bytes, capability: int) -> list[str]:
    """The PTX of a module; several texts where it was linked. Raises NoPtx, or CompileError for what is damaged."""
    if data.startswith(b"\x7fELF"):
        raise NoPtx(
            "a cubin, which is machine code of a GPU: hcq.cudacpu runs PTX (nvrtcGetPTX instead of nvrtcGetCUBIN;"
            " --gpu-architecture=compute_90 instead of sm_90; nvcc -gencode arch=compute_90,code=compute_90)"
        )
    if data.startswith(_LINKED):
        return [_decoded(text) for text in data[16:].split(b"\0")]
    if len(data) >= 16 and struct.unpack_from("<I", data)[0] == _FAT:
        return [_decoded(_from_fat(data, capability))]
    if b".version" not in data:
        raise CompileError("this is neither PTX nor a fat binary", source=data)
    return [_decoded(data)]


def entries(data: bytes) -> list[Entry]:
    """What is in a fat binary."""
    _, _, head, size = struct.unpack_from("<IHHQ", data)
    at, end = head, min(head + size, len(data))
    found = []
    while at + 64 <= end:
        kind, _, header, padded = _HEAD.unpack_from(data, at)
        compressed, _, _, _, capability = struct.unpack_from("<IIHHI", data, at + 16)
        flags, _, unpacked = struct.unpack_from("<QQQ", data, at + 40)
        start = at + header
        used = compressed if flags & (_LZ4 | _ZSTD) and compressed else padded
        found.append(Entry(kind, capability, flags, data[start : start + used], unpacked))
        at = start + padded
        if header < 64 or padded == 0:
            break
    return found


def _from_fat(data: bytes, capability: int) -> bytes:
    every = entries(data)
    fitting = [e for e in every if e.kind == _PTX and e.capability <= capability]
    if not fitting:
        names = {_PTX: "PTX for compute_", _ELF: "machine code for sm_"}
        shown = ", ".join(f"{names.get(e.kind, f'kind {e.kind} for ')}{e.capability}" for e in every) or "nothing"
        raise NoPtx(
            f"a fat binary without PTX that a device of compute capability {capability // 10}.{capability % 10} could"
            f" run; in it: {shown}"
        )
    best = max(fitting, key=lambda e: e.capability)
    if best.flags & _ZSTD:
        return _zstd(best)
    return _lz4(best.payload, best.size) if best.flags & _LZ4 else best.payload


def _zstd(entry: Entry) -> bytes:
    """By whatever the machine has: Python 3.14's own, the package zstandard, or the system's library."""
    try:
        try:
            own = importlib.import_module("compression.zstd")
        except ImportError:
            unpacked = importlib.import_module("zstandard").ZstdDecompressor().decompress(entry.payload, entry.size)
        else:
            unpacked = own.decompress(entry.payload)
        return bytes(unpacked)
    except ImportError:
        pass
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise NoPtx(
            "a fat binary whose PTX is compressed by zstd, and nothing here that reads it: pip install zstandard, or"
            " nvcc --compress-mode=none"
        ) from None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(entry.size)
    size = library.ZSTD_decompress(out, ctypes.c_size_t(entry.size), entry.payload, ctypes.c_size_t(len(entry.payload)))
    if size != entry.size:
        raise CompileError("a fat binary whose compressed PTX is damaged")
    return out.raw


def _lz4(data: bytes, size: int) -> bytes:
    """One block of LZ4 ("LZ4 Block Format"): literals, then a match at some distance back, and so on."""
    out = bytearray()
    at = 0
    try:
        while len(out) < size:
            token = data[at]
            at += 1
            count, at = _length(data, at, token >> 4)
            out += data[at : at + count]
            at += count
            if len(out) >= size:
                break
            distance = data[at] | data[at + 1] << 8
            count, at = _length(data, at + 2, token & 15)
            count += 4
            start = len(out) - distance
            if distance == 0 or start < 0:
                raise CompileError("a fat binary whose compressed PTX is damaged")
            while count > 0:  # a match may reach into what it makes
                piece = out[start : start + count]
                out += piece
                start += len(piece)
                count -= len(piece)
    except IndexError:
        raise CompileError("a fat binary whose compressed PTX is cut off") from None
    return bytes(out)


def _length(data: bytes, at: int, nibble: int) -> tuple[int, int]:
    total = nibble
    if nibble == 15:
        while True:
            more = data[at]
            at += 1
            total += more
            if more != 255:
                break
    return total, at


def _decoded(text: bytes) -> str:
    return text.rstrip(b"\0").decode("utf-8", "surrogateescape")
