"""Damaged libraries: whatever happens to the bytes, loading gives a clear error or a library, never a crash."""

from __future__ import annotations

import shutil
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq import _native
from hcq.drivers.cpu import object_library, toolchain
from hcq.drivers.cpu.library import ACCESSES, EntryKind, Function, Param, ParamKind, pack, unpack
from hcq.errors import InvalidProgram

SOURCE = """
#include <hcq.h>
#include <math.h>
static const char *const names[] = {"a", "b"};
int data[] = {1, 2, 3}, more[100];
static double (*operation)(double) = sin;
HCQ_KERNEL void kernel(float *out, double scale, int n) { out[n] = operation(scale) + data[n] + names[n & 1][0]; }
void plain(int *out, unsigned char c) { more[c] = out[c]; out[1] = more[data[0]]; }
void refused(long double x) {}
"""


@pytest.fixture(scope="module")
def library():
    if not any(shutil.which(name) for name in ("clang", "gcc", "cc")):
        pytest.skip("no C compiler on this machine")
    return object_library.make_library(toolchain.compile_object(toolchain.find_c_compiler(), SOURCE).object)


def resealed(image):
    """The bytes with a checksum and length that are right again, so that parsing goes on."""
    image = image[:12] + bytes(4) + image[16:24] + struct.pack("<Q", len(image)) + image[32:]
    return image[:12] + struct.pack("<I", zlib.crc32(image)) + image[16:]


def try_load(image):
    loaded = 0
    for name in ("kernel", "plain", "refused", "absent"):
        try:
            _native._Function(image, name)
            loaded += 1
        except InvalidProgram as error:
            assert str(error).strip()
    return loaded


@given(data=st.data())
def test_no_damage_goes_unnoticed(library, data):
    at = data.draw(st.integers(0, len(library) - 1))
    flipped = bytearray(library)
    flipped[at] ^= data.draw(st.integers(1, 255))
    assert try_load(bytes(flipped)) == 0
    assert try_load(library[:at]) == 0
    assert try_load(library + bytes([at & 255])) == 0
    with pytest.raises(InvalidProgram):
        unpack(bytes(flipped))


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused(data):
    assert try_load(data) == 0
    assert try_load(b"HCQLIB\x1a\n" + data) == 0


@given(data=st.data())
def test_malformed_contents_under_a_right_checksum_crash_nothing(library, data):
    image = bytearray(library)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(8, len(image) - 1))
        if data.draw(st.booleans()):
            image[at] = data.draw(st.integers(0, 255))
        else:
            image[at : at + 8] = struct.pack("<Q", data.draw(st.integers(0, 2**64 - 1)))[: len(image) - at]
    if data.draw(st.booleans()):
        del image[data.draw(st.integers(48, len(image) - 1)) :]
    try_load(resealed(bytes(image)))


@given(data=st.data())
def test_malformed_headers_of_objects_crash_nothing(library, data):
    made = unpack(library)
    image = bytearray(made.object)
    (table,) = struct.unpack_from("<Q", image, 40)
    for _ in range(data.draw(st.integers(1, 4))):
        interesting = st.sampled_from(
            [0, 1, 2, 4, 8, 9, 16, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 8, 2**64 - 1]
        )
        value = data.draw(interesting | st.integers(0, len(image)))
        at = data.draw(st.integers(0, 63) | st.integers(table, len(image) - 1))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        image[at : at + width] = struct.pack("<Q", value)[: min(width, len(image) - at)]
    try_load(pack(bytes(image), list(made.functions), made.machine))


names = st.text(st.characters(codec="utf-8"), max_size=40)
accesses = st.sampled_from(ACCESSES)
kinds = st.lists(st.sampled_from(ParamKind.ALL), max_size=70).map(lambda kinds: sorted(kinds, key=bool))
functions = st.builds(
    Function,
    name=names,
    kind=st.sampled_from(EntryKind.ALL),
    params=st.none()
    | kinds.flatmap(lambda kinds: st.tuples(*[st.builds(Param, st.just(k), names, accesses) for k in kinds])),
    refused=names,
    scratch_group=st.integers(0, 2**32 - 1),
    scratch_item=st.integers(0, 2**32 - 1),
)


@given(st.lists(functions, max_size=5), st.binary(max_size=100))
def test_what_is_packed_is_unpacked(entries, image):
    made = unpack(pack(image, entries, machine=62))
    assert made.object == image
    assert list(made.functions) == entries
