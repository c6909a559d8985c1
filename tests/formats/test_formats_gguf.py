"""hcq.load of GGUF, and of blocks and floating tensors as another type."""

import ml_dtypes
import numpy as np
import pytest
from tensor_files import (
    ARRAY,
    EVERYTHING,
    F32,
    STRING,
    U8,
    U32,
    array,
    gguf,
    noise,
    pair,
    same,
    tensor,
    text,
)

import hcq
from hcq import dtypes, formats
from hcq.errors import FormatError
from hcq.formats import blocks, convert


def test_gguf_has_metadata_and_tensors_in_the_order_of_c(device, tmp_path):
    data = np.arange(6, dtype=np.float32).tobytes()
    q8 = noise(34 * 2 * 3)
    pairs = [
        pair("a", U32, (7).to_bytes(4, "little")),
        pair("s", STRING, text("text, Größe")),
        pair("list", ARRAY, array(STRING, [text("x"), text("y")])),
        pair("floats", ARRAY, array(F32, [np.float32(1.5).tobytes(), np.float32(-2).tobytes()])),
        pair("nested", ARRAY, array(ARRAY, [array(U8, [b"\1", b"\2"]), array(U8, [])])),
    ]
    tensors = [tensor("f", (2, 3), 0, 0), tensor("q", (3, 64), blocks.BY_NAME["Q8_0"].number, 32)]
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf(pairs, tensors, data + bytes(8) + q8.tobytes()))
    loaded = hcq.load(path, device)
    assert loaded.metadata == {
        "a": 7,
        "s": "text, Größe",
        "list": ["x", "y"],
        "floats": [1.5, -2.0],
        "nested": [[1, 2], []],
    }
    same(loaded, {"f": np.arange(6, dtype=np.float32).reshape(2, 3), "q": q8.reshape(3, 68)})
    assert (loaded.types["q"], loaded.shapes["q"]) == ("Q8_0", (3, 64))
    entry = formats.open(path)["q"]
    assert (entry.type, entry.shape, entry.buffer_shape, entry.is_raw) == ("Q8_0", (3, 64), (3, 68), True)
    assert np.array_equal(entry[1:3].load(device).numpy(), q8.reshape(3, 68)[1:])


def part_of_gguf(name, number, count, total):
    pairs = [pair("split.count", 2, count.to_bytes(2, "little")), pair("split.no", 2, number.to_bytes(2, "little"))]
    pairs.append(pair("split.tensors.count", 5, total.to_bytes(4, "little")))
    return gguf(pairs, [tensor(name, (4,), 0, 0)], np.full(4, number, np.float32).tobytes())


def test_a_part_of_a_gguf_file_that_was_split_stands_for_all(tmp_path):
    for number in range(3):
        path = tmp_path / f"m-{number + 1:05}-of-00003.gguf"
        path.write_bytes(part_of_gguf(f"t{number}", number, 3, 3))
    everything = {f"t{number}": np.full(4, number, np.float32) for number in range(3)}
    for path in tmp_path.iterdir():
        same(hcq.load(path, "CLANG"), everything)
    (tmp_path / "one.gguf").write_bytes(part_of_gguf("t0", 0, 3, 3))
    with pytest.raises(FormatError, match="one of 3 parts"):
        hcq.load(tmp_path / "one.gguf", "CLANG")
    (tmp_path / "m-00002-of-00003.gguf").write_bytes(part_of_gguf("t1", 1, 3, 4))
    with pytest.raises(FormatError, match="3 tensors instead of 4"):
        hcq.load(tmp_path / "m-00002-of-00003.gguf", "CLANG")
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(FileNotFoundError):
        hcq.load(tmp_path / "m-00001-of-00003.gguf", "CLANG")


def test_blocks_of_every_type_have_the_size_that_ggml_says():
    constants = pytest.importorskip("gguf.constants", reason="the package gguf is the reference, and not here")
    known = {each.number: (each.name, each.size, each.nbytes) for each in blocks.TYPES}
    for kind, (size, nbytes) in constants.GGML_QUANT_SIZES.items():
        if kind.name != "Q8_1":  # of intermediate results; the package counts what ggml had once
            assert known[int(kind)] == (kind.name, size, nbytes)


def test_a_file_written_by_the_gguf_package_loads(device, tmp_path):
    gguf_package = pytest.importorskip("gguf", reason="the package gguf is the reference, and not here")
    path = tmp_path / "a.gguf"
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_array("names", ["a", "b"])
    values = {"f32": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), "f16": np.ones((5,), np.float16)}
    for name, value in values.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    loaded = hcq.load(path, device)
    same(loaded, values)
    assert loaded.metadata["general.architecture"] == "llama" and loaded.metadata["names"] == ["a", "b"]


QUANTISED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def quantised_blocks(kind, count):
    """Random blocks of a type, whose scales are ordinary numbers."""
    known = blocks.BY_NAME[kind]
    data = noise(count * known.nbytes, known.number).reshape(count, known.nbytes)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}.get(kind, (0,))
    for at in halves:
        scales = np.linspace(-2, 3, count).astype(np.float16)
        data[:, at : at + 2] = scales[:, None].view(np.uint8)
    return data


@pytest.mark.parametrize("kind", QUANTISED)
def test_blocks_become_the_numbers_that_the_gguf_package_says(device, kind, tmp_path):
    package = pytest.importorskip("gguf", reason="the package gguf is the reference, and not here")
    known, rows, columns = blocks.BY_NAME[kind], 5, 3
    data = quantised_blocks(kind, rows * columns)
    expected = package.dequantize(data, package.GGMLQuantizationType[kind]).reshape(rows, columns * known.size)
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf((), [tensor("q", expected.shape, known.number, 0)], data.tobytes()))
    assert hcq.load(path, device)["q"].shape == (rows, columns * known.nbytes)
    same(hcq.load(path, device, dtype=dtypes.float32), {"q": expected})
    same(hcq.load(path, device, dtype="float16"), {"q": expected.astype(np.float16)})
    same(hcq.load(path, device, dtype=dtypes.bfloat16), {"q": expected.astype(ml_dtypes.bfloat16)})
    rows_of = formats.open(path)["q"][2:4].load(device, dtypes.float32)
    assert np.array_equal(rows_of.numpy(), expected[2:4])


@pytest.mark.parametrize("wanted", ["float32", "float16", "bfloat16"])
def test_floating_tensors_are_loaded_as_the_type_asked_for(device, wanted, tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, EVERYTHING)
    as_type = dtypes.to_numpy(wanted)
    floating = {"f16", "bf16", "f8a", "f8b", "f32", "f64", "scalar", "nothing"}
    expected = {name: value.astype(as_type) if name in floating else value for name, value in EVERYTHING.items()}
    same(hcq.load(path, device, dtype=wanted), expected)
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(np.linspace(0, 1, 12).reshape(3, 4)))
    same(hcq.load(tmp_path / "a.npz", device, dtype=wanted), {"x": np.linspace(0, 1, 12).reshape(3, 4).astype(as_type)})


def test_large_tensors_are_converted_in_pieces(device, tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "_PIECE", 256)
    value = np.linspace(-1, 1, 1001)
    hcq.save(tmp_path / "a.safetensors", {"x": value})
    same(hcq.load(tmp_path / "a.safetensors", device, dtype="float32"), {"x": value.astype(np.float32)})


def test_what_cannot_be_converted_is_named(tmp_path):
    kind = blocks.BY_NAME["IQ4_NL"]
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf((), [tensor("x", (32,), kind.number, 0)], bytes(kind.nbytes)))
    assert hcq.load(path, "CLANG")["x"].shape == (18,)
    before = hcq.memory_stats("CLANG")
    with pytest.raises(ValueError, match=r"'x' \(IQ4_NL\)"):
        hcq.load(path, "CLANG", dtype=dtypes.float32)
    with pytest.raises(ValueError, match=r"not as dtypes\.int8"):
        hcq.load(path, "CLANG", dtype=dtypes.int8)
    assert hcq.memory_stats("CLANG").live_bytes == before.live_bytes


@pytest.mark.parametrize("kind", QUANTISED)
def test_an_item_for_each_element_makes_the_same_numbers(kind, tmp_path):
    """As on devices that are no processors; the strict one also looks at every index."""
    known = blocks.BY_NAME[kind]
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf((), [tensor("q", (2 * known.size,), known.number, 0)], quantised_blocks(kind, 2).tobytes()))
    expected = hcq.load(path, "LLVM", dtype=dtypes.float32)["q"].numpy()
    same(hcq.load(path, "PYTHON", dtype=dtypes.float32), {"q": expected})
