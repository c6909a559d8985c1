"""PTX is found in what modules are loaded from. The layout of fat binaries is what nvcc's fatbinary writes."""

from __future__ import annotations

import struct

import pytest

from hcq.cudacpu import fatbin
from hcq.errors import CompileError

TEXT = ".version 8.0\n.target sm_80\n" + "// a line of it that is there often\n" * 40


def entry(kind, capability, payload, flags=0x11, size=0):
    padded = payload + bytes(-len(payload) % 8)
    used = len(payload) if size else 0
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), used, 0, 0, 0, capability, 0, 0, flags, 0, size)
    assert len(head) == 64
    return head + padded


def fat(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4(data):
    """One block: the first 80 bytes as they are, then one match as far as it goes, then what is left."""
    start, back = 80, 36
    end = start
    while end < len(data) and data[end] == data[end - back]:
        end += 1

    def count(n):
        return b"" if n < 15 else bytes([255] * ((n - 15) // 255) + [(n - 15) % 255])

    rest = data[end:]
    match = end - start - 4
    out = bytes([15 << 4 | min(match, 15)]) + count(80) + data[:80] + struct.pack("<H", back) + count(match)
    return out + bytes([min(len(rest), 15) << 4]) + count(len(rest)) + rest


def test_text_is_taken_as_it_is_and_what_was_linked_in_parts():
    assert fatbin.texts(TEXT.encode() + b"\0", 80) == [TEXT]
    linked = b"HCQLINK1" + struct.pack("<Q", 0) + b".version 8.0\0.version 8.1"
    assert fatbin.texts(linked, 80) == [".version 8.0", ".version 8.1"]


def test_the_best_ptx_that_the_device_can_run_is_taken():
    found = fat(entry(2, 80, b"\x7fELF"), *(entry(1, c, f".version {c}".encode()) for c in (50, 75, 90)))
    assert fatbin.texts(found, 86) == [".version 75"]
    assert fatbin.texts(found, 90) == [".version 90"]


def test_compressed_ptx_is_unpacked():
    packed = lz4(TEXT.encode())
    assert len(packed) < len(TEXT) // 2
    found = fat(entry(1, 80, packed, 0x2011, len(TEXT)), entry(1, 50, b".version 5"))
    assert fatbin.texts(found, 86) == [TEXT]
    with pytest.raises(CompileError, match=r"cut off|damaged"):
        fatbin.texts(fat(entry(1, 80, packed[:40], 0x2011, len(TEXT))), 86)


def test_what_has_no_ptx_is_refused_with_what_it_has():
    with pytest.raises(fatbin.NoPtx, match=r"compute capability 8\.6 .*: machine code for sm_80, PTX for compute_90"):
        fatbin.texts(fat(entry(2, 80, b"\x7fELF"), entry(1, 90, b".version 8")), 86)
    with pytest.raises(fatbin.NoPtx, match="cubin"):
        fatbin.texts(b"\x7fELF" + bytes(60), 86)
    with pytest.raises(CompileError, match="neither PTX nor a fat binary"):
        fatbin.texts(b"hello", 86)
