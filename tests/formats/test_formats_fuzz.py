"""Any bytes at all, and good files with some bytes changed: FormatError, or tensors that lie within the file."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensor_files import ARRAY, STRING, U8, U32, array, field, gguf, noise, pair, safetensors, tensor, text

import hcq
from hcq import _native, formats
from hcq.errors import FormatError

pytestmark = pytest.mark.hypothesis


def good_files(folder):
    pairs = [pair("a", U32, bytes(4)), pair("b", ARRAY, array(STRING, [text("x"), text("yy")])), pair("c", U8, b"1")]
    tensors = [tensor("t", (2, 3), 0, 0), tensor("q", (2, 32), 8, 32)]
    np.savez(folder / "a.npz", a=np.arange(5), b=np.ones((2, 2), np.float32))
    np.savez_compressed(folder / "b.npz", a=np.arange(50))
    np.save(folder / "a.npy", np.arange(6).reshape(2, 3))
    hcq.save(folder / "a.safetensors", {"a": noise(4), "b": np.ones((2, 2), np.float16)}, metadata={"k": "v"})
    (folder / "b.safetensors").write_bytes(safetensors({"a": field("F32", [2], 0, 8)}, bytes(8)))
    (folder / "a.json").write_text(json.dumps({"metadata": {}, "weight_map": {"a": "a.safetensors"}}))
    (folder / "a.gguf").write_bytes(gguf(pairs, tensors, noise(100).tobytes()))
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with good files, what they hold, and a path to write others to."""
    folder = tmp_path_factory.mktemp("fuzz")
    return good_files(folder), folder / "changed"


def look(path, data):
    """Whatever is in the file is loaded, or refused as a whole."""
    path.write_bytes(data)
    try:
        archive = formats.open(path)
    except (FormatError, FileNotFoundError):  # an index may name any file
        return
    for entry in archive.values():
        assert 0 <= entry.nbytes <= 1 << 40
    try:
        loaded = archive.load("CLANG")
    except FormatError:
        return
    for name, buf in loaded.items():
        assert buf.shape == archive[name].buffer_shape
        buf.as_buffer() if buf.size else None


@given(st.data())
def test_changed_files_are_refused_or_loaded(place, data):
    good, path = place
    content = bytearray(data.draw(st.sampled_from(good)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["bit", "byte", "word", "cut", "repeat", "insert"])):
            case "bit":
                content[at] ^= 1 << data.draw(st.integers(0, 7))
            case "byte":
                content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, *b'{}[]",:']))
            case "word":
                value = data.draw(st.sampled_from([0, 1, 2, 255, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]))
                content[at : at + 8] = struct.pack("<Q", value)
            case "cut":
                del content[at:]
            case "repeat":
                content[at:at] = content[at : at + data.draw(st.integers(1, 40))]
            case "insert":
                content[at:at] = data.draw(st.binary(max_size=8))
        if not content:
            break
    look(path, bytes(content))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_loaded(place, data):
    for magic in (b"", b"GGUF\3\0\0\0", b"\x93NUMPY\1\0", b"PK\3\4", b"{", struct.pack("<Q", len(data)) + b"{"):
        look(place[1], magic + data)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 65) | st.floats() | st.sampled_from(["F32", "U8", "F4", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "__metadata__", ""]), _json, max_size=3), st.binary(max_size=40))
def test_any_json_is_refused_or_loaded(place, header, data):
    look(place[1], safetensors(header, data))


_entries = st.lists(
    st.tuples(st.sampled_from(["U8", "F16", "F32", "F4"]), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 30)),
    max_size=5,
)


@given(_entries, st.integers(0, 40))
def test_tensors_are_loaded_if_and_only_if_they_fill_the_data_exactly(place, described, size):
    bits = {"U8": 8, "F16": 16, "F32": 32, "F4": 4}
    header, places, right = {}, [], True
    for number, (kind, shape, begin) in enumerate(described):
        total = int(np.prod(shape)) * bits[kind]
        nbytes = -(-total // 8)
        right = right and total % 8 == 0
        header[f"t{number}"] = field(kind, shape, begin, begin + nbytes)
        if nbytes:
            places.append((begin, begin + nbytes))
        right = right and begin <= size
    covered = [0] * size
    for begin, end in places:
        right = right and end <= size
        for at in range(begin, min(end, size)):
            covered[at] += 1
    place[1].write_bytes(safetensors(header, bytes(size)))
    if right and all(count == 1 for count in covered):
        assert set(hcq.load(place[1], "CLANG")) == set(header)
    else:
        with pytest.raises(FormatError):
            hcq.load(place[1], "CLANG")


_PLAIN = json.dumps(
    {"__metadata__": {"k": "v"}, "a": field("F32", [2, 0], 0, 24), "b": field("U8", [], 24, 25)}
).encode()


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from(list(b'{}[]",:\\ 0123456789.-eabkF_\n\x00\xff'))), max_size=4
    )
)
def test_what_the_fast_reader_of_headers_takes_the_careful_one_reads_alike(changes):
    header = bytearray(_PLAIN)
    for at, byte in changes:
        if at % 3:
            header[at % len(header)] = byte
        else:
            header.insert(at % len(header), byte)
    fast = _native.safetensors_header(bytes(header))
    if fast is None:
        return
    pairs = json.loads(bytes(header), object_pairs_hook=lambda pairs: pairs)
    assert len({name for name, _ in pairs}) == len(pairs)
    said = dict(pairs)
    metadata = said.pop("__metadata__", [])
    assert fast[1] == dict(metadata) and len(fast[1]) == len(metadata)
    items = []
    for name, fields in said.items():
        known = dict(fields)
        assert len(known) == len(fields) == 3
        items += [name, known["dtype"], tuple(known["shape"]), *known["data_offsets"]]
    assert fast[0] == items
