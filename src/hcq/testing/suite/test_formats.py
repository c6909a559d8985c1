"""hcq.load and hcq.save: tensors of files on the device, and back."""

import json
import struct

import numpy as np
import pytest

import hcq
from hcq.errors import FormatError
from hcq.testing.marks import promise
from hcq.testing.suite.tools import filled, noise, read

TENSORS = {
    "wide": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "bytes": noise(5001),
    "scalar": np.array(7, np.int64),
    "large": noise(700_001),
}


def same(buf, array):
    assert buf.shape == array.shape
    assert read(buf, array.dtype).tobytes() == array.tobytes()


@promise("formats.load")
@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_tensors_of_a_file_are_on_the_device(dev, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    hcq.save(path, TENSORS)
    loaded = hcq.load(path, dev.dname)
    assert set(loaded) == set(TENSORS)
    for name, array in TENSORS.items():
        assert loaded[name].device == dev.dname
        same(loaded[name], array)


@promise("formats.load")
def test_blocks_of_gguf_are_on_the_device_as_bytes(dev, tmp_path):
    q8_0, blocks = 8, noise(34 * 6)
    name = b"t"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + name
    head += struct.pack("<IQQIQ", 2, 64, 3, q8_0, 0)
    (tmp_path / "a.gguf").write_bytes(head + bytes(-len(head) % 32) + blocks.tobytes())
    loaded = hcq.load(tmp_path / "a.gguf", dev.dname)
    assert loaded.types == {"t": "Q8_0"} and loaded.shapes == {"t": (3, 64)}
    same(loaded["t"], blocks.reshape(3, 68))


@promise("formats.names")
def test_only_tensors_asked_for_are_loaded(dev, tmp_path):
    hcq.save(tmp_path / "a.safetensors", TENSORS)
    loaded = hcq.load(tmp_path / "a.safetensors", dev.dname, ["scalar", "w*"])
    assert set(loaded) == {"scalar", "wide"}
    for name, buf in loaded.items():
        same(buf, TENSORS[name])
    with pytest.raises(KeyError):
        hcq.load(tmp_path / "a.safetensors", dev.dname, "missing")


@promise("formats.save")
def test_buffers_are_saved_after_the_work_queued(dev, tmp_path):
    source = filled(dev, noise(3001))
    dest = hcq.Buffer(dev.dname, 3001, hcq.dtypes.uint8).allocate()
    hcq.copy(dest, source)
    hcq.save(tmp_path / "a.safetensors", {"a": dest})
    data = (tmp_path / "a.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    assert json.loads(data[8:begin])["a"]["shape"] == [3001]
    assert data[begin:] == noise(3001).tobytes()


@promise("formats.save")
def test_a_save_that_fails_leaves_the_old_file(dev, tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": filled(dev, noise(100))})
    before = path.read_bytes()
    with pytest.raises(RuntimeError):
        hcq.save(path, {"a": filled(dev, noise(100)), "b": hcq.Buffer(dev.dname, 4, hcq.dtypes.uint8)})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@promise("formats.gguf")
def test_floats_and_blocks_are_saved_as_gguf(dev, tmp_path):
    values = {"f": np.arange(6, dtype=np.float32).reshape(2, 3), "q": noise(34 * 6).reshape(3, 68)}
    buffers = {name: filled(dev, value) for name, value in values.items()}
    path, metadata = tmp_path / "a.gguf", {"general.name": "x", "count": 7, "list": [1.5, -2.0]}
    buffers["q"] = hcq.array(values["q"], dev.dname)
    hcq.save(path, buffers, metadata=metadata, types={"q": "Q8_0"})
    loaded = hcq.load(path, dev.dname)
    assert loaded.metadata == metadata and loaded.types == {"f": "F32", "q": "Q8_0"}
    assert loaded.shapes["q"] == (3, 64)
    assert read(loaded["f"], np.float32).tobytes() == values["f"].tobytes()
    same(loaded["q"], values["q"])


@promise("formats.checked")
@pytest.mark.parametrize("wrong", ["truncated", "overlapping", "too long", "twice"])
def test_damaged_files_are_refused_before_anything_is_allocated(dev, wrong, tmp_path):
    field = '{"dtype":"U8","shape":[64],"data_offsets":[0,64]}'
    header = '{"a":%s,"b":{"dtype":"U8","shape":[64],"data_offsets":[%d,%d]}}'
    header = header % (field, *((32, 96) if wrong == "overlapping" else (64, 128)))
    if wrong == "twice":
        header = header.replace('"b"', '"a"')
    length = 1 << 60 if wrong == "too long" else len(header)
    data = bytes(96 if wrong == "overlapping" else 127 if wrong == "truncated" else 128)
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", length) + header.encode() + data)
    before = hcq.memory_stats(dev.dname)
    with pytest.raises(FormatError) as caught:
        hcq.load(tmp_path / "a.safetensors", dev.dname)
    assert caught.value.path.endswith("a.safetensors") and caught.value.reason
    assert hcq.memory_stats(dev.dname) == before
