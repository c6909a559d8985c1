"""Files that lie, are cut short, or are no files: refused with what and where, before anything is allocated."""

import errno
import io
import os
import struct
import threading
import time
import zipfile

import numpy as np
import pytest
from tensor_files import ARRAY, BOOL, STRING, U8, U32, array, field, gguf, noise, pair, safetensors, tensor, text

import hcq
from hcq import _native, formats
from hcq.errors import FormatError, HCQError

F32 = field("F32", [2], 0, 8)
WRONG_SAFETENSORS = {
    "empty": (b"", "truncated"),
    "seven bytes": (b"\0" * 7, "truncated"),
    "no header": (struct.pack("<Q", 10), "truncated"),
    "length of nothing": (safetensors(b"", b"x"), "no JSON object"),
    "absurd length": (safetensors("{}", length=1 << 62), "are the limit"),
    "length past the end": (safetensors("{}", length=3), "truncated: the header would have 3 bytes, and 2"),
    "no object": (safetensors("[]"), "no JSON object"),
    "not JSON": (safetensors('{"a": }'), "not JSON"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), "not UTF-8"),
    "deep": (safetensors('{"a":' * 100_000), "not JSON"),
    "a NaN": (safetensors('{"a": NaN}'), "NaN"),
    "a long number": (safetensors('{"a": ' + "9" * 5000 + "}"), "not JSON"),
    "duplicate": (safetensors('{"a": 1, "a": 2}'), "key 'a' twice"),
    "duplicate field": (
        safetensors('{"a": {"dtype": "U8", "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', b"x"),
        "key 'dtype' twice",
    ),
    "no fields": (safetensors({"a": {}}), "tensor 'a': expected"),
    "a tensor of text": (safetensors({"a": "b"}), "tensor 'a': expected"),
    "unknown type": (safetensors({"a": field("F33", [2], 0, 8)}, bytes(8)), "unknown dtype 'F33'"),
    "negative shape": (safetensors({"a": field("F32", [-2], 0, 8)}, bytes(8)), "whole numbers"),
    "a shape of flags": (safetensors({"a": field("U8", [True], 0, 1)}, bytes(1)), "whole numbers"),
    "a shape of fractions": (safetensors({"a": field("U8", [1.0], 0, 1)}, bytes(1)), "whole numbers"),
    "sixty-five dimensions": (safetensors({"a": field("U8", [1] * 65, 0, 1)}, bytes(1)), "whole numbers"),
    "three offsets": (safetensors({"a": {**F32, "data_offsets": [0, 4, 8]}}, bytes(8)), "whole numbers"),
    "backwards": (safetensors({"a": field("F32", [2], 8, 0)}, bytes(8)), "needs 8 bytes"),
    "sizes disagree": (safetensors({"a": field("F32", [3], 0, 8)}, bytes(8)), "needs 12 bytes, and .* 0 to 8 are 8"),
    "size overflows": (safetensors({"a": field("F32", [1 << 33, 1 << 33], 0, 0)}), "needs"),
    "half a byte": (safetensors({"a": field("F4", [3], 0, 1)}, bytes(1)), "needs 1.5 bytes"),
    "past the end": (safetensors({"a": field("F32", [2], 4, 12)}, bytes(8)), "and the data are .*truncated"),
    "truncated data": (safetensors({"a": F32}, bytes(7)), "truncated"),
    "overlap": (
        safetensors({"a": field("F32", [2], 0, 8), "b": field("F32", [2], 4, 12)}, bytes(12)),
        "'a' and 'b' overlap",
    ),
    "same place": (safetensors({"a": F32, "b": F32}, bytes(8)), "overlap"),
    "a hole": (
        safetensors({"a": F32, "b": field("U8", [1], 9, 10)}, bytes(10)),
        "1 bytes before tensor 'b' belong to no tensor",
    ),
    "more data": (safetensors({"a": F32}, bytes(9)), "1 bytes after the last tensor"),
    "metadata of numbers": (safetensors({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata of text": (safetensors({"__metadata__": "a"}), "__metadata__"),
}

ONE = (tensor("t", (2, 3), 0, 0),)
WRONG_GGUF = {
    "magic alone": (b"GGUF", "truncated"),
    "version 1": (gguf(version=1), "version 1"),
    "version 4": (gguf(version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 3, big-endian"),
    "absurd tensors": (gguf(counts=(1 << 60, 0)), "claims .* tensors"),
    "absurd keys": (gguf(counts=(0, 1 << 60)), "claims .* keys"),
    "one key too many": (gguf([pair("a", U8, b"\1")] * 1, counts=(0, 2)), "truncated"),
    "long key": (gguf([struct.pack("<Q", 1 << 60) + bytes(40)]), "truncated: a key would end"),
    "key not UTF-8": (gguf([pair(b"\xff", U8, b"\1" + bytes(20))]), "a key is not UTF-8"),
    "duplicate key": (gguf([pair("a", U8, b"\1"), pair("a", U8, b"\2")]), "the key 'a' occurs twice"),
    "unknown type of value": (gguf([pair("a", 13, bytes(20))]), "no type of values with the number 13"),
    "a bool of 2": (gguf([pair("a", BOOL, b"\2")]), "a bool must be 0 or 1"),
    "bools of 3": (gguf([pair("a", ARRAY, array(BOOL, [b"\0", b"\3"]))]), "a bool must be 0 or 1, and is 3"),
    "absurd array": (gguf([pair("a", ARRAY, array(U8, [], count=1 << 60))]), "truncated"),
    "absurd texts": (gguf([pair("a", ARRAY, array(STRING, [], count=1 << 60))]), "no room for an array"),
    "absurd arrays": (gguf([pair("a", ARRAY, array(ARRAY, [], count=1 << 60))]), "no room for an array"),
    "deep arrays": (gguf([pair("a", ARRAY, array(ARRAY, [struct.pack("<IQ", ARRAY, 1)] * 9, 1))]), "nested"),
    "unaligned alignment": (gguf([pair("general.alignment", U32, struct.pack("<I", 12))], ONE, bytes(24)), "alignment"),
    "no alignment": (gguf([pair("general.alignment", U32, bytes(4))], ONE, bytes(24)), "alignment"),
    "alignment of text": (gguf([pair("general.alignment", STRING, text("x"))], ONE, bytes(24)), "alignment"),
    "five dimensions": (gguf(tensors=[tensor("t", (1,) * 5, 0, 0)], data=bytes(4)), "5 dimensions"),
    "unknown type": (gguf(tensors=[tensor("t", (1,), 4, 0)], data=bytes(4)), "no type with the number 4"),
    "unaligned tensor": (gguf(tensors=[tensor("t", (1,), 0, 4)], data=bytes(8)), "not aligned"),
    "half a block": (gguf(tensors=[tensor("t", (33,), 8, 0)], data=bytes(99)), "no whole blocks of Q8_0"),
    "past the end": (gguf(tensors=[tensor("t", (9,), 0, 0)], data=bytes(32)), "truncated"),
    "far away": (gguf(tensors=[tensor("t", (1,), 0, 1 << 62)], data=bytes(32)), "truncated"),
    "no data": (gguf(tensors=ONE)[:-30], "truncated"),
    "overlap": (
        gguf(tensors=[tensor("t", (9,), 0, 0), tensor("u", (1,), 0, 32)], data=bytes(64)),
        "'t' and 'u' overlap",
    ),
    "duplicate tensor": (
        gguf(tensors=[tensor("t", (1,), 0, 0), tensor("t", (1,), 0, 32)], data=bytes(64)),
        "tensor 't' occurs twice",
    ),
}


def npy_bytes(value, **arguments):
    stream = io.BytesIO()
    np.save(stream, value, **arguments)
    return stream.getvalue()


def npy_header(text, version=b"\1\0"):
    data = text.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(data)) + data


WRONG_NPY = {
    "magic alone": (b"\x93NUMPY\1\0", "no .npy file"),
    "cut header": (npy_bytes(np.arange(9))[:40], "no .npy file"),
    "cut data": (npy_bytes(np.arange(9))[:-1], "truncated"),
    "more data": (npy_bytes(np.arange(9)) + b"x", "and 73 follow"),
    "pickles": (npy_bytes(np.array([{}, 1], object), allow_pickle=True), "never read"),
    "records": (npy_bytes(np.zeros(2, [("a", "i4"), ("b", "f4")])), "which no buffer has"),
    "texts": (npy_bytes(np.array(["a"])), "which no buffer has"),
    "version 9": (npy_header("{}", b"\x09\0"), "no .npy file"),
    "a call": (npy_header("{'descr': exit(), 'fortran_order': False, 'shape': (1,)}"), "no .npy file"),
    "not a dict": (npy_header("[1]"), "no .npy file"),
    "negative": (npy_header("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}"), "whole numbers"),
    "absurd": (
        npy_header(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({1 << 62}, {1 << 62})}}"),
        "truncated",
    ),
    "deep": (npy_header("(" * 5000), "no .npy file"),
}


def refused(path, data, reason):
    path.write_bytes(data)
    before = hcq.memory_stats("CLANG")
    with pytest.raises(FormatError, match=reason) as caught:
        hcq.load(path, "CLANG")
    after = hcq.memory_stats("CLANG")
    assert (after.live_bytes, after.cached_bytes) == (before.live_bytes, before.cached_bytes)
    error = caught.value
    assert isinstance(error, HCQError) and isinstance(error, ValueError)
    assert error.path == str(path) and (error.offset is None or error.offset >= 0)


@pytest.mark.parametrize("name", WRONG_SAFETENSORS)
def test_wrong_safetensors_are_refused_with_what_and_where(name, tmp_path):
    refused(tmp_path / "a.safetensors", *WRONG_SAFETENSORS[name])


@pytest.mark.parametrize("name", WRONG_GGUF)
def test_wrong_gguf_is_refused_with_what_and_where(name, tmp_path):
    refused(tmp_path / "a.gguf", *WRONG_GGUF[name])


@pytest.mark.parametrize("name", WRONG_NPY)
def test_wrong_npy_is_refused_with_what_and_where(name, tmp_path):
    refused(tmp_path / "a.npy", *WRONG_NPY[name])


def test_wrong_zips_are_refused(tmp_path):
    np.savez(tmp_path / "good.npz", a=np.arange(1000), b=np.arange(3))
    np.savez_compressed(tmp_path / "packed.npz", a=np.arange(1000))
    good, packed = (tmp_path / "good.npz").read_bytes(), (tmp_path / "packed.npz").read_bytes()
    refused(tmp_path / "a.npz", good[:-30], "damaged zip")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as other:
        other.writestr("data.pkl", b"x")
    refused(tmp_path / "a.npz", (tmp_path / "other.npz").read_bytes(), "'data.pkl' is no array")
    with zipfile.ZipFile(tmp_path / "other.npz", "w", zipfile.ZIP_BZIP2) as other:
        other.writestr("a.npy", npy_bytes(np.arange(4)))
    refused(tmp_path / "a.npz", (tmp_path / "other.npz").read_bytes(), "compressed by method 12")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as other, pytest.warns(UserWarning, match="Duplicate"):
        other.writestr("a.npy", npy_bytes(np.arange(4)))
        other.writestr("a.npy", npy_bytes(np.arange(4)))
    refused(tmp_path / "a.npz", (tmp_path / "other.npz").read_bytes(), "occurs twice")
    flipped = bytearray(good)
    flipped[good.index(np.arange(5).tobytes())] ^= 1
    damaged(tmp_path / "a.npz", bytes(flipped))
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0x10
    damaged(tmp_path / "a.npz", bytes(flipped))


def test_a_zip_whose_members_begin_before_it_is_refused(tmp_path):
    np.savez(tmp_path / "good.npz", a=np.arange(10))
    data = bytearray((tmp_path / "good.npz").read_bytes())
    end = data.rindex(b"PK\5\6")
    offset = struct.unpack_from("<I", data, end + 16)[0]
    struct.pack_into("<I", data, end + 16, offset + 50)  # everything is then taken to lie 50 bytes further to the front
    refused(tmp_path / "a.npz", bytes(data), "zip|outside")


def damaged(path, data):
    """Damage that only the elements show: found while they are read, or before."""
    path.write_bytes(data)
    with pytest.raises(FormatError):
        hcq.load(path, "CLANG")


def test_a_key_that_occurs_twice_is_found_in_one_pass(tmp_path):
    count = 300_000  # comparing each with each would take an hour
    pairs = ",".join(f'"k{n}":"f"' for n in range(count))
    refused(
        tmp_path / "i.json",
        f'{{"weight_map": {{{pairs},"k{count - 1}":"g"}}}}'.encode(),
        f"'k{count - 1}' occurs twice",
    )


def test_an_index_that_lies_is_refused(tmp_path):
    hcq.save(tmp_path / "s.safetensors", {"a": noise(3)})
    wrong = {
        "{": "not an index in JSON",
        "{}": "weight_map",
        '{"weight_map": []}': "weight_map",
        '{"weight_map": {"a": "../s.safetensors"}}': "in this folder",
        '{"weight_map": {"a": "/etc/passwd"}}': "in this folder",
        '{"weight_map": {"a": 3}}': "in this folder",
        '{"weight_map": {"a": ".."}}': "in this folder",
        '{"weight_map": {"b": "s.safetensors"}}': "tensor 'b' is not in",
        '{"weight_map": {"a": "s.safetensors", "a": "s.safetensors"}}': "twice",
    }
    for written, reason in wrong.items():
        refused(tmp_path / "i.json", written.encode().ljust(8), reason)
    (tmp_path / "i.json").write_text('{"weight_map": {"a": "missing.safetensors"}}')
    with pytest.raises(FileNotFoundError) as caught:
        hcq.load(tmp_path / "i.json", "CLANG")
    assert any("i.json" in note for note in caught.value.__notes__)


def test_a_header_as_long_as_a_brace_is_no_index(tmp_path):
    header = '{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    name = "n" * (123 - len(header))
    header = header.replace('""', f'"{name}"')
    assert len(header) == ord("{")
    (tmp_path / "a").write_bytes(safetensors(header, b"x"))
    assert hcq.load(tmp_path / "a", "CLANG")[name].numpy().tolist() == [ord("x")]


def test_what_is_no_file_is_refused_as_the_system_says(tmp_path):
    with pytest.raises(FileNotFoundError):
        hcq.load(tmp_path / "missing", "CLANG")
    with pytest.raises(IsADirectoryError):
        hcq.load(tmp_path, "CLANG")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        hcq.load(tmp_path / "pipe", "CLANG")
    with pytest.raises(FormatError):
        hcq.load("/dev/null" if os.path.isfile("/dev/null") else __file__, "CLANG")


def test_a_file_whose_name_ends_like_a_mode_is_only_read(tmp_path):
    path = tmp_path / "a.safetensors?mode=create"
    hcq.save(tmp_path / "a.safetensors", {"a": noise(3)})
    (tmp_path / "a.safetensors").rename(path)
    assert np.array_equal(hcq.load(path, "CLANG")["a"].numpy(), noise(3))
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_cut_short_after_its_header_was_read_raises(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(10_000_000), "b": noise(3)})
    archive = formats.open(path)
    os.truncate(path, 9_000_000)
    for names in (None, "a"):
        with pytest.raises(EOFError, match="ends at byte 9000000"):
            archive.load("CLANG", names)


def test_a_short_read_is_continued_and_an_error_is_the_systems(tmp_path):
    path = tmp_path / "a.safetensors"
    values = {f"t{n}": noise(1000 + n, n) for n in range(50)}
    hcq.save(path, values)
    archive = formats.open(path)
    for most, code in ((1, 0), (37, 0), (999, 0), (2**62, errno.EINTR), (2**62, errno.EAGAIN)):
        _native.disk_disturb(60, most, code)
        try:
            loaded = archive.load("CLANG")
        finally:
            _native.disk_disturb(0, 2**62, 0)
        for name, value in values.items():
            assert np.array_equal(loaded[name].numpy(), value)
    _native.disk_disturb(1, 2**62, errno.EIO)
    try:
        with pytest.raises(OSError, match="Input/output error") as caught:
            archive.load("CLANG")
    finally:
        _native.disk_disturb(0, 2**62, 0)
    assert caught.value.filename == str(path)


def test_a_read_that_fails_ends_the_load_with_the_systems_error(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {f"t{n}": noise(1_000_000) for n in range(20)})
    archive = formats.open(path)
    threads = threading.active_count()

    def broken(source, views, offset):
        time.sleep(0.001)
        if offset > 5_000_000:
            raise OSError(5, os.strerror(5), source.path)

    monkeypatch.setattr(formats.source.Source, "read_into", broken)
    with pytest.raises(OSError, match="Input/output error"):
        archive.load("CLANG")
    assert threading.active_count() <= threads
