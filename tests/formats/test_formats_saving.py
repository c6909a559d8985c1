"""hcq.save: what others read, and what is left when it fails."""

import os
import signal

import numpy as np
import pytest
from tensor_files import EVERYTHING, noise, same

import hcq
from hcq import dtypes, formats
from hcq.formats import blocks

HALF = "a\ud800b"  # of a surrogate pair: text in Python, and in no file


def test_what_is_saved_is_what_others_read_and_we_load(device, tmp_path):
    buffers = {name: hcq.array(value, device) for name, value in EVERYTHING.items() if value.size}
    buffers["nothing"] = EVERYTHING["nothing"]  # arrays are saved as well
    package = pytest.importorskip("safetensors", reason="the package safetensors is the reference, and not here")
    path = tmp_path / "saved.safetensors"
    hcq.save(path, buffers, metadata={"a": "b"})
    read = dict(package.deserialize(path.read_bytes()))
    assert set(read) == set(EVERYTHING)
    for name, value in EVERYTHING.items():
        assert tuple(read[name]["shape"]) == value.shape and bytes(read[name]["data"]) == value.tobytes(), name
    loaded = hcq.load(path, device)
    same(loaded, EVERYTHING)
    assert loaded.metadata == {"a": "b"}


def test_shards_saved_again_leave_those_of_the_former_index(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    hcq.save(index, {"a": noise(10), "b": noise(10)}, shard_bytes=10)
    former = {path: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    hcq.save(index, {"a": noise(10, 1), "b": noise(10, 2)}, shard_bytes=10)
    assert all(path.read_bytes() == data for path, data in former.items())
    same(hcq.load(index, "CLANG"), {"a": noise(10, 1), "b": noise(10, 2)})


def test_saving_replaces_at_once_and_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    before = path.read_bytes()
    os.chmod(path, 0o640)
    buf = hcq.Buffer("CLANG", 4, dtypes.float32)
    for wrong in ({"a": buf}, {"a": object()}, {3: noise(1)}, [noise(3)]):
        with pytest.raises((TypeError, RuntimeError)):
            hcq.save(path, wrong)
    for arguments in ({"metadata": {"a": 1}}, {"metadata": "text"}, {"shard_bytes": 10}):
        with pytest.raises((TypeError, ValueError)):
            hcq.save(path, {"a": noise(1)}, **arguments)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.safetensors"]
    with pytest.raises(ValueError, match="suffix"):
        hcq.save(tmp_path / "a.bin", {})
    with pytest.raises(TypeError, match="NumPy doesn't have"):
        hcq.save(tmp_path / "a.npy", EVERYTHING["bf16"])
    with pytest.raises(OSError, match="No such file"):
        hcq.save(tmp_path / "missing" / "a.safetensors", {"a": noise(1)})
    hcq.save(path, {"a": noise(100, 3)})
    assert path.stat().st_mode & 0o777 == 0o640 and os.listdir(tmp_path) == ["a.safetensors"]


def test_a_new_file_has_the_permissions_that_files_get_here_and_nobody_elses_change_meanwhile(tmp_path, monkeypatch):
    inner = os.umask
    before = inner(0o027)
    try:

        def refused(mask):
            raise AssertionError("the mask is the whole process's: files that other threads make have it too")

        monkeypatch.setattr(os, "umask", refused)
        hcq.save(tmp_path / "a.safetensors", {"a": noise(100)})
        os.chmod(tmp_path / "a.safetensors", 0o600)
        hcq.save(tmp_path / "a.safetensors", {"a": noise(100)})
        hcq.save(tmp_path / "b.npy", noise(100))
    finally:
        inner(before)
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in ("a.safetensors", "b.npy")] == [0o600, 0o640]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    before = path.read_bytes()

    def full(descriptor, data):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(formats.replace.os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            hcq.save(path, {"a": noise(200)})
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.safetensors"]


def test_a_symbolic_link_stays_one_when_saved_to(tmp_path):
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    link.symlink_to(real)
    hcq.save(link, noise(10))
    assert link.is_symlink() and np.array_equal(np.load(real), noise(10))


def test_a_process_killed_while_it_saves_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    before = path.read_bytes()
    child = os.fork()
    if not child:
        written = os.write

        def killed(descriptor, data):
            written(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

        os.write = killed
        hcq.save(path, {"a": noise(200)})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() == before
    hcq.save(path, {"a": noise(200)})
    same(hcq.load(path, "CLANG"), {"a": noise(200)})


def test_names_that_a_format_cannot_have_are_refused_before_anything_is_written(tmp_path):
    for file, name, more in (
        ("a.safetensors", "__metadata__", {}),
        ("a.safetensors", "__metadata__", {"metadata": {"a": "b"}}),
        ("a.safetensors.index.json", "__metadata__", {"shard_bytes": 10}),
        ("a.npz", "a\0b", {}),
        ("a.npz", "a" * 65532, {}),
        ("a.gguf", "a" * 65, {"types": {"a": "Q8_0"}}),
    ):
        with pytest.raises(ValueError, match="name"):
            hcq.save(tmp_path / file, {"a": noise(102), name: noise(3)}, **more)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "metadata"),
    [
        *((f"a.{suffix}", None) for suffix in ("safetensors", "safetensors.index.json", "npz", "gguf")),
        *((f"a.{suffix}", {HALF: "x"}) for suffix in ("safetensors", "safetensors.index.json", "gguf")),
        ("a.safetensors", {"x": HALF}),
        ("a.gguf", {"x": [HALF]}),
    ],
    ids=ascii,
)
def test_texts_that_no_file_can_have_are_refused_with_their_place(file, metadata, tmp_path):
    tensors = {HALF if metadata is None else "a": np.ones(4, np.float32)}
    shards = {"shard_bytes": 10} if file.endswith(".json") else {}
    with pytest.raises(ValueError, match=r"(name|text|key) 'a\\ud800b' has half a surrogate pair at place 1"):
        hcq.save(tmp_path / file, tensors, metadata=metadata, **shards)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("types", [3, ["a"], {"a": 8}, {"a": "Q8_0"}], ids=str)
def test_types_that_a_gguf_file_cannot_give_its_tensors_are_refused(types, tmp_path):
    with pytest.raises(TypeError, match=r"types maps tensors' names|its blocks come as bytes, uint8, not"):
        hcq.save(tmp_path / "a.gguf", {"a": np.ones(34, np.float32)}, types=types)
    assert os.listdir(tmp_path) == []


def test_numbers_that_no_type_of_gguf_holds_are_refused(tmp_path):
    for wrong in (2**64, [2**64], [0.5, 2**2000]):
        with pytest.raises(ValueError, match="metadata 'k'"):
            hcq.save(tmp_path / "a.gguf", {}, metadata={"k": wrong})


def test_a_file_whose_name_is_as_long_as_names_get_is_saved(tmp_path):
    path = tmp_path / ("\u6f22" * 83 + ".npy")
    hcq.save(path, noise(3))
    assert np.array_equal(hcq.load(path, "CLANG").numpy(), noise(3)) and os.listdir(tmp_path) == [path.name]


def test_shards_that_could_not_all_be_written_are_gone_again(tmp_path, monkeypatch):
    index = tmp_path / "m.safetensors.index.json"
    hcq.save(index, {"a": noise(10)}, shard_bytes=10)
    before = sorted(os.listdir(tmp_path))
    write = os.write
    for left in (1, 2, 3, 4):  # writes before the disk is full: of the second shard, and of the index
        state = [left]

        def full(descriptor, data, state=state):
            state[0] -= 1
            if state[0] < 0:
                raise OSError(28, os.strerror(28))
            return write(descriptor, data)

        with monkeypatch.context() as patched:
            patched.setattr(formats.replace.os, "write", full)
            with pytest.raises(OSError, match="No space left"):
                hcq.save(index, {"a": noise(10, 1), "b": noise(10, 2)}, shard_bytes=10)
        assert sorted(os.listdir(tmp_path)) == before
    assert np.array_equal(hcq.load(index, "CLANG")["a"].numpy(), noise(10))


BLOCKS = ("Q8_0", "Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4")
IN_GGUF = {name: EVERYTHING[name] for name in ("i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "scalar")}
VALUES = {
    "general.architecture": "test, Größe",
    "count": 7,
    "negative": -7,
    "large": 2**40,
    "largest": 2**64 - 1,
    "half": 0.5,
    "tenth": 0.1,
    "on": True,
    "names": ["a", "b", ""],
    "numbers": [1, -2, 3],
    "flags": [True, False],
    "floats": [0.5, 0.1],
    "mixed": [1, 0.5],
    "none": [],
    "nested": [[1, 2], [], [2**50]],
}


def test_what_is_saved_as_gguf_is_loaded_again(device, tmp_path):
    quantised = {kind: noise(3 * 2 * blocks.BY_NAME[kind].nbytes, n).reshape(3, -1) for n, kind in enumerate(BLOCKS)}
    values = {**IN_GGUF, **quantised}
    path = tmp_path / "a.gguf"
    buffers = {name: hcq.array(value, device) for name, value in values.items()}
    hcq.save(path, buffers, metadata=VALUES, types={kind: kind for kind in BLOCKS})
    loaded = hcq.load(path, device)
    same(loaded, values)
    assert loaded.metadata == VALUES
    assert all(loaded.types[kind] == kind for kind in BLOCKS)
    assert loaded.shapes["Q4_K"] == (3, 512) and loaded.types["bf16"] == "BF16"
    metadata = {**loaded.metadata, "split.count": 3, "split.no": 1, "general.alignment": 64}
    hcq.save(tmp_path / "again.gguf", loaded, metadata=metadata)  # it knows its types
    again = hcq.load(tmp_path / "again.gguf", device)
    same(again, values)
    assert again.metadata == {**VALUES, "general.alignment": 64} and again.types == loaded.types
    assert all(entry.offset % 64 == 0 for entry in formats.open(tmp_path / "again.gguf").values())


def test_the_gguf_package_reads_what_is_saved(tmp_path):
    gguf = pytest.importorskip("gguf", reason="the package gguf is the reference, and not here")
    values = {"f": np.arange(6, dtype=np.float32).reshape(2, 3), "h": np.ones(5, np.float16), "i": np.arange(3)}
    q8 = noise(2 * 2 * 34).reshape(2, 68)
    path = tmp_path / "a.gguf"
    scalars = {"b": np.uint8(3), "h": np.int16(-3), "e": np.float32(1e-5), "d": np.float64(1e-5), "n": np.int64(-5)}
    arrays = {"s": np.array([0.1, 0.2], np.float32), "u": np.arange(3, dtype=np.uint16)}
    hcq.save(path, {**values, "q": q8}, metadata={**VALUES, **scalars, **arrays}, types={"q": "Q8_0"})
    reader = gguf.GGUFReader(path)
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name, value in values.items():
        assert np.array_equal(found[name].data.reshape(value.shape), value) and found[name].data.dtype == value.dtype
    assert found["q"].tensor_type.name == "Q8_0" and bytes(found["q"].data) == q8.tobytes()
    said = {name: [kind.name for kind in field.types] for name, field in reader.fields.items()}
    expected = {
        "count": ["UINT32"],
        "negative": ["INT32"],
        "large": ["INT64"],
        "largest": ["UINT64"],
        "half": ["FLOAT32"],
        "tenth": ["FLOAT64"],
        "numbers": ["ARRAY", "INT32"],
        "names": ["ARRAY", "STRING"],
        "b": ["UINT8"],
        "h": ["INT16"],
        "e": ["FLOAT32"],
        "d": ["FLOAT64"],
        "n": ["INT64"],
        "s": ["ARRAY", "FLOAT32"],
        "u": ["ARRAY", "UINT16"],
    }
    assert {name: said[name] for name in expected} == expected
    assert reader.fields["general.architecture"].contents() == "test, Größe"
    assert reader.fields["numbers"].contents() == [1, -2, 3]


def test_what_gguf_cannot_have_is_refused_before_anything_is_written(tmp_path):
    path, array = tmp_path / "a.gguf", np.ones(3, np.float32)
    wrong = [
        (TypeError, {"a": noise(34)}, {}),
        (TypeError, {"a": noise(34)}, {"types": {"a": "Q9"}}),
        (TypeError, {"a": np.ones(3, np.uint16)}, {}),
        (ValueError, {"a": noise(35)}, {"types": {"a": "Q8_0"}}),
        (ValueError, {"a": array}, {"types": {"b": "Q8_0"}}),
        (ValueError, {"n" * 65: array}, {}),
        (ValueError, {"a": np.ones((1,) * 5, np.float32)}, {}),
        (ValueError, {"a": array}, {"shard_bytes": 10}),
        (ValueError, {"a": array}, {"metadata": {"general.alignment": 12}}),
        (ValueError, {"a": array}, {"metadata": {"k": 2**64}}),
        (ValueError, {"a": array}, {"metadata": {"k": [[[[[[1]]]]]]}}),
        (TypeError, {"a": array}, {"metadata": {"k": None}}),
        (TypeError, {"a": array}, {"metadata": {"k": [1, "a"]}}),
        (TypeError, {"a": array}, {"metadata": {3: 1}}),
        (TypeError, {"a": array}, {"metadata": "text"}),
        (TypeError, [array], {}),
    ]
    for error, tensors, arguments in wrong:
        with pytest.raises(error):
            hcq.save(path, tensors, **arguments)
    with pytest.raises(ValueError, match="GGUF"):
        hcq.save(tmp_path / "a.safetensors", {"a": array}, types={})
    assert os.listdir(tmp_path) == []
