"""hcq.load: what is in the file is what is on the device; only what was asked for is read."""

import gc
import json
import math
import os
import pickle
import threading
import weakref

import numpy as np
import pytest
from tensor_files import EVERYTHING, field, noise, safetensors, same

import hcq
from hcq import _native, dtypes, formats
from hcq.errors import FormatError, UnknownTensor
from hcq.validation import redzones


def test_every_type_of_safetensors_arrives_as_it_is(device, tmp_path):
    reference = pytest.importorskip(
        "safetensors.numpy", reason="the package safetensors is the reference, and not here"
    )
    path = tmp_path / "all.safetensors"
    reference.save_file(EVERYTHING, path, metadata={"made by": "the reference"})
    loaded = hcq.load(path, device)
    same(loaded, EVERYTHING)
    assert loaded.metadata == {"made by": "the reference"}
    assert all(buf.device == hcq.Device.canonicalize(device) for buf in loaded.values())
    assert loaded["bf16"].dtype is dtypes.bfloat16 and loaded["scalar"].shape == ()


def test_npz_and_npy_go_both_ways(device, tmp_path):
    numpys = {name: value for name, value in EVERYTHING.items() if value.dtype.isbuiltin == 1}
    for name, write in {"stored": np.savez, "packed": np.savez_compressed}.items():
        write(tmp_path / f"{name}.npz", **numpys)
        same(hcq.load(tmp_path / f"{name}.npz", device), numpys)
    hcq.save(tmp_path / "ours.npz", hcq.load(tmp_path / "stored.npz", device))
    with np.load(tmp_path / "ours.npz") as read:
        assert set(read) == set(numpys)
        for name, value in numpys.items():
            assert read[name].dtype == value.dtype and np.array_equal(read[name], value), name
    for value in numpys.values():
        np.save(tmp_path / "a.npy", value)
        buf = hcq.load(tmp_path / "a.npy", device)
        same({"": buf}, {"": value})
        if value.size:
            hcq.save(tmp_path / "b.npy", buf)
            again = np.load(tmp_path / "b.npy")
            assert again.dtype == value.dtype and np.array_equal(again, value)


def test_arrays_in_fortrans_order_and_of_the_other_byte_order_are_turned_round(device, tmp_path):
    value = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for stored in (np.asfortranarray(value), value.astype(">i4"), np.asfortranarray(value.astype(">i4"))):
        np.save(tmp_path / "a.npy", stored)
        np.savez(tmp_path / "a.npz", a=stored)
        same({"a": hcq.load(tmp_path / "a.npy", device)}, {"a": value})
        same(hcq.load(tmp_path / "a.npz", device), {"a": value})
        hcq.save(tmp_path / "b.safetensors", {"a": stored})
        same(hcq.load(tmp_path / "b.safetensors", device), {"a": value})


def test_shards_are_one_file_to_load_and_only_those_asked_for_are_opened(device, tmp_path):
    tensors = {f"layer.{n}": noise(1000 + n, n) for n in range(20)}
    index = tmp_path / "m.safetensors.index.json"
    hcq.save(index, tensors, shard_bytes=4000)
    assert len(list(tmp_path.glob("m-*-of-*.safetensors"))) > 4
    same(hcq.load(index, device), tensors)
    assert list(hcq.load(index, device)) == list(tensors)
    first = next(tmp_path.glob("m-00001-*"))
    first.unlink()
    same(hcq.load(index, device, "layer.1?"), {f"layer.{n}": tensors[f"layer.{n}"] for n in range(10, 20)})
    with pytest.raises(FileNotFoundError):
        hcq.load(index, device, ["layer.0"])


def test_names_and_patterns_choose_what_is_loaded(tmp_path):
    path = tmp_path / "a.safetensors"
    names = ["a.w", "a.b", "b.w", "odd[0]", "odd*"]
    hcq.save(path, {name: noise(3) for name in names})
    chosen = {
        "a.w": ["a.w"],
        "a.*": ["a.b", "a.w"],
        "?.w": ["a.w", "b.w"],
        "odd[0]": ["odd[0]"],  # a name is itself before it is a pattern
        "odd*": ["odd*"],
        "[ab].w": ["a.w", "b.w"],
    }
    for asked, expected in chosen.items():
        assert sorted(hcq.load(path, "CLANG", asked)) == expected
    assert sorted(hcq.load(path, "CLANG", ["a.w", "b.*"])) == ["a.w", "b.w"]
    assert hcq.load(path, "CLANG", []) == {}
    with pytest.raises(KeyError, match=r"has no tensor 'a.v'.*nearest.*'a.w'"):
        hcq.load(path, "CLANG", "a.v")
    with pytest.raises(KeyError, match="matches 'c"):
        hcq.load(path, "CLANG", "c*")
    with pytest.raises(TypeError):
        hcq.load(path, "CLANG", [3])


def test_only_the_bytes_asked_for_are_read_in_the_order_of_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    sizes = {f"t{n}": 100_000 for n in range(20)}
    hcq.save(path, {name: noise(size) for name, size in sizes.items()})
    read = []
    inner = formats.source.Source.read_into

    def spy(source, views, offset):
        read.append((offset, sum(view.nbytes for view in views)))
        inner(source, views, offset)

    archive = formats.open(path)
    monkeypatch.setattr(formats.source.Source, "read_into", spy)
    loaded = archive.load("CLANG", ["t9", "t3", "t17", "t4"])
    assert read == [(archive["t17"].offset, 100_000), (archive["t3"].offset, 200_000), (archive["t9"].offset, 100_000)]
    same(loaded, {name: noise(100_000) for name in ("t3", "t4", "t9", "t17")})


def test_an_archive_says_what_is_there_and_loads_rows(device, tmp_path):
    path = tmp_path / "a.safetensors"
    value = np.arange(60, dtype=np.float32).reshape(10, 3, 2)
    hcq.save(path, {"x": value, "y": np.zeros((), np.int8)})
    archive = formats.open(path)
    assert list(archive) == ["x", "y"] and len(archive) == 2 and archive.format == "safetensors"
    x = archive["x"]
    assert (x.shape, x.dtype, x.type, x.nbytes) == ((10, 3, 2), dtypes.float32, "F32", 240)
    for rows in (slice(2, 5), slice(None), slice(-1, None), slice(7, 3), slice(9, 100)):
        assert np.array_equal(x[rows].load(device).numpy(), value[rows])
    with pytest.raises(TypeError):
        x[3]
    with pytest.raises(ValueError, match="step"):
        x[::2]
    with pytest.raises(ValueError, match="no rows"):
        archive["y"][:1]
    with pytest.raises(KeyError, match="has no tensor 'z'"):
        archive["z"]
    assert "x" in archive and "z" not in archive and "2 tensors" in repr(archive)


def test_an_archive_keeps_the_file_it_looked_into(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"x": noise(1000, 1)})
    archive = formats.open(path)
    hcq.save(path, {"x": noise(1000, 2)})
    same(archive.load("CLANG"), {"x": noise(1000, 1)})
    same(hcq.load(path, "CLANG"), {"x": noise(1000, 2)})


def test_a_forked_child_loads(tmp_path):
    path = tmp_path / "a.safetensors"
    values = {"small": noise(100), "large": noise(5_000_000)}
    hcq.save(path, values)
    archive = formats.open(path)  # the child may use what it inherited
    same(archive.load("CLANG"), values)
    child = os.fork()
    if not child:
        status = 1
        try:
            same(archive.load("CLANG"), values)
            same(hcq.load(path, "LLVM"), values)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_is_loaded_inside_a_capture(tmp_path):
    hcq.save(tmp_path / "a.safetensors", {"small": noise(100), "large": noise(3_000_000), "empty": noise(0)})
    for device in ("CLANG", "NULL", "PYTHON"):
        for names in ("small", "large", "empty"):
            for dtype in (None, dtypes.float16):
                with pytest.raises(RuntimeError, match=r"inside hcq\.capture"), hcq.capture():
                    hcq.load(tmp_path / "a.safetensors", device, names, dtype=dtype)


def test_a_sparse_file_of_more_than_four_gigabytes_is_loaded_in_part(tmp_path):
    path = tmp_path / "a.safetensors"
    far = 5 << 30
    header = {"before": field("U8", [far], 0, far), "x": field("F32", [2, 3], far, far + 24)}
    with open(path, "wb") as file:
        file.write(safetensors(header))
        file.seek(far, os.SEEK_CUR)
        file.write(np.arange(6, dtype=np.float32).tobytes())
    same(hcq.load(path, "CLANG", "x"), {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_types_of_fewer_than_eight_bits_are_their_bytes(tmp_path):
    path = tmp_path / "a.safetensors"
    data = noise(6)
    path.write_bytes(safetensors({"x": field("F4", [3, 4], 0, 6)}, data.tobytes()))
    loaded = hcq.load(path, "CLANG")
    same(loaded, {"x": data.reshape(3, 2)})
    assert loaded.shapes["x"] == (3, 4) and loaded.types["x"] == "F4"


def test_the_result_is_a_dict_whose_tensors_are_freed_one_by_one(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(1 << 20), "b": noise(1 << 20)})
    before = hcq.memory_stats("CLANG").live_bytes
    loaded = hcq.load(path, "CLANG")
    assert hcq.memory_stats("CLANG").live_bytes == before + (2 << 20)
    del loaded["a"]
    assert hcq.memory_stats("CLANG").live_bytes == before + (1 << 20)
    assert isinstance(loaded, dict) and "1 tensors" in repr(loaded)


@pytest.mark.unchecked("the checks look at every allocation each time that one is read")
def test_many_small_tensors_and_many_shards_arrive_in_their_places(tmp_path):
    values = {f"t{n:05}": np.full(1 + n % 7, n, np.int32) for n in range(5000)}
    hcq.save(tmp_path / "m.safetensors.index.json", values, shard_bytes=2000)
    same(hcq.load(tmp_path / "m.safetensors.index.json", "CLANG"), values)


def test_the_checks_find_nothing_in_loading_and_are_asked_to_look_once_not_once_a_tensor(tmp_path, monkeypatch):
    values = {f"t{n}": np.full(5, n, np.int32) for n in range(300)}
    hcq.save(tmp_path / "a.safetensors", values)
    looks = []
    with hcq.checks(strict=True) as found:
        inner = redzones.RedZones.check
        monkeypatch.setattr(
            redzones.RedZones, "check", lambda zones, *given: looks.append(zones) or inner(zones, *given)
        )
        loaded = hcq.load(tmp_path / "a.safetensors", "CLANG")
        assert len(looks) < 10
        copy = hcq.empty(5, dtypes.int32, "CLANG")
        hcq.copy(copy, loaded["t7"])
        assert (copy.numpy() == 7).all()
    assert not found.findings


def test_threads_may_load_one_archive(tmp_path):
    path = tmp_path / "a.safetensors"
    values = {f"t{n}": noise(200_000, n) for n in range(16)}
    hcq.save(path, values)
    archive = formats.open(path)
    failures = []

    def work(n):
        try:
            same(archive.load("CLANG", f"t{n}"), {f"t{n}": values[f"t{n}"]})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_files_are_closed_when_nobody_uses_them(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    hcq.load(path, "CLANG")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        kept = hcq.load(path, "CLANG")
    assert len(os.listdir("/proc/self/fd")) == before
    archive = formats.open(path)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del archive
    assert len(os.listdir("/proc/self/fd")) == before
    assert kept


def test_format_errors_say_where_and_pickle(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors("{]"))
    with pytest.raises(FormatError, match="not JSON") as caught:
        hcq.load(path, "CLANG")
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, ValueError) and error.path == str(path) and error.offset == 9 and str(path) in str(error)


def test_a_bar_is_shown_when_asked_for(tmp_path, capfd):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    hcq.load(path, "CLANG", progress=False)
    assert capfd.readouterr().err == ""
    hcq.load(path, "CLANG", progress=True)
    assert "100" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["npz", "fortran", "swapped"])
def test_rows_of_arrays_that_lie_otherwise_than_buffers_are_those_asked_for(device, kind, tmp_path):
    array = np.arange(60, dtype=">f4" if kind == "swapped" else "f4").reshape(10, 3, 2)
    path = tmp_path / "a"
    with open(path, "wb") as file:
        if kind == "npz":
            np.savez_compressed(file, x=array)
        else:
            np.save(file, np.asfortranarray(array) if kind == "fortran" else array)
    (entry,) = formats.open(path).values()
    assert np.array_equal(entry[2:7].load(device).numpy(), array[2:7])
    assert np.array_equal(entry[2:7][1:3].load(device, dtypes.float16).numpy(), array[3:5])
    assert entry[4:4].load(device).shape == (0, 3, 2)


def test_archives_of_one_zip_file_have_positions_of_their_own(tmp_path):
    path = tmp_path / "a.npz"
    hcq.save(path, {"x": noise(1000)})
    archive = formats.open(path)
    place = os.stat(path)
    mine = [int(fd) for fd in os.listdir("/proc/self/fd") if _is(int(fd), place)]
    archive.load("CLANG")
    assert mine and all(os.lseek(fd, 0, os.SEEK_CUR) == 0 for fd in mine)


def _is(descriptor, place):
    try:
        return os.path.samestat(os.fstat(descriptor), place)
    except OSError:
        return False


def test_loading_leaves_no_device_behind(tmp_path):
    opened = hcq.Device.opened
    for n in range(3):
        hcq.save(tmp_path / f"{n}.safetensors", {"a": noise(100), "b": noise(1_000_000)})
        loaded = hcq.load(tmp_path / f"{n}.safetensors", "CLANG")
        same(loaded, {"a": noise(100), "b": noise(1_000_000)})
    assert set(hcq.Device.opened) <= {*opened, "CLANG"}
    mine = hcq.Buffer(f"DISK:{tmp_path}/0.safetensors", 8, dtypes.uint8).allocate()
    device = hcq.Device[mine.device]
    archive = formats.open(tmp_path / "0.safetensors")
    hcq.load(tmp_path / "0.safetensors", "CLANG")
    assert hcq.Device[mine.device] is device and mine.is_allocated()  # another's stays his
    hcq.Device.close(mine.device)
    same(archive.load("CLANG"), {"a": noise(100), "b": noise(1_000_000)})
    devices = [weakref.ref(archive["a"].source.buffer.allocator.device)]
    del archive, device, mine
    gc.collect()
    assert devices[0]() is None
    with pytest.raises(FileNotFoundError):
        hcq.load(tmp_path / "none", "CLANG")
    assert set(hcq.Device.opened) <= {*opened, "CLANG"}


def test_an_archive_whose_device_was_closed_reads_no_other_file(tmp_path):
    path = tmp_path / "a.safetensors"
    hcq.save(path, {"a": noise(100)})
    archive = formats.open(path)
    archive["a"].source.buffer.deallocate()
    other = tmp_path / "other"
    other.write_bytes(bytes(100_000))
    files = [os.open(other, os.O_RDONLY) for _ in range(8)]  # one of them gets the descriptor's number
    with pytest.raises(RuntimeError, match="closed"):
        archive.load("CLANG")
    for file in files:
        os.close(file)
    assert np.array_equal(hcq.load(path, "CLANG")["a"].numpy(), noise(100))


def test_nothing_is_loaded_onto_a_file_where_all_tensors_would_share_their_bytes(tmp_path):
    hcq.save(tmp_path / "a.safetensors", {"a": noise(3), "b": noise(3, 1)})
    with pytest.raises(ValueError, match="can't be loaded onto DISK"):
        hcq.load(tmp_path / "a.safetensors", f"DISK:{tmp_path}/out?mode=create")
    assert not (tmp_path / "out").exists()


def test_paths_may_be_bytes_and_no_names_are_no_tensors(tmp_path):
    path = os.fsencode(tmp_path / "a.npy")
    hcq.save(path, noise(3))
    assert np.array_equal(hcq.load(path, "CLANG").numpy(), noise(3))
    assert hcq.load(path, "CLANG", []) == {}


def test_a_key_that_is_not_there_is_said_as_it_was_given(tmp_path):
    hcq.save(tmp_path / "a.safetensors", {"a": noise(3)})
    with pytest.raises(KeyError, match=r"no tensor 'a\*'"):
        formats.open(tmp_path / "a.safetensors")["a*"]
    with pytest.raises(UnknownTensor, match="nearest are 'a'") as caught:
        hcq.load(tmp_path / "a.safetensors", "CLANG", "aa")
    assert isinstance(caught.value, KeyError) and str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


ONES = {f"{n} {chr(228 + n)}": np.full((1,) * (n % 4), n, np.float32) for n in range(12)}


@pytest.mark.parametrize("spaces", [{"separators": (",", ":")}, {"indent": 1}, {}])
def test_headers_are_the_same_read_fast_or_slowly(tmp_path, monkeypatch, spaces):
    fields = {name: field("F32", list(value.shape), 4 * n, 4 * n + 4) for n, (name, value) in enumerate(ONES.items())}
    header = json.dumps({"__metadata__": {"k": "v", "é": ""}, **fields}, ensure_ascii=False, **spaces) + "  "
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors(header, b"".join(value.tobytes() for value in ONES.values())))
    assert _native.safetensors_header(header.encode()) is not None
    fast = hcq.load(path, "CLANG")
    monkeypatch.setattr(_native, "safetensors_header", lambda text: None)
    slow = hcq.load(path, "CLANG")
    same(fast, ONES)
    same(slow, ONES)
    assert list(fast) == list(slow) and fast.metadata == slow.metadata == {"k": "v", "é": ""}
    assert fast.types == slow.types and fast.shapes == slow.shapes


UNUSUAL = (
    r'{"a\n":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1,],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}',
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}',
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}}',
    '{"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1]}}',
    '{"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}',
    '{"__metadata__":{},"__metadata__":{}}',
    '{"__metadata__":{"a":"","a":""}}',
    '{"__metadata__":{"a":1}}',
    '{"__metadata__":[]}',
    '{"a":{"dtype":"U8","shape":[' + ",".join(["1"] * 65) + '],"data_offsets":[0,1]}}',
    '{"a":3}',
    '{"a"}',
    "{",
    "{}}",
    "{} x",
    "[]",
    "",
    ' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}',
    '{"a\tb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
)


@pytest.mark.parametrize(
    "header", [*(text.encode() for text in UNUSUAL), b'{"\xff":{}}', b'{"__metadata__":{"\xff":""}}']
)
def test_unusual_headers_are_left_to_the_careful_reader(header):
    assert _native.safetensors_header(header) is None


def test_a_plain_header_cut_anywhere_is_unusual():
    header = json.dumps({"__metadata__": {"k": "v"}, "a": field("F32", [2, 3], 0, 24)}).encode()
    for end in range(len(header)):
        assert _native.safetensors_header(header[:end]) is None
    assert _native.safetensors_header(header) == (["a", "F32", (2, 3), 0, 24], {"k": "v"})


@pytest.mark.parametrize("piece", [1, 40, 1 << 20])
def test_fortrans_order_and_the_other_byte_order_are_turned_round_in_pieces(device, tmp_path, monkeypatch, piece):
    monkeypatch.setattr(formats.npy, "_PIECE", piece)
    arrays = {
        f"{dtype}{n}": np.asarray(np.arange(math.prod(shape)).reshape(shape), dtype, order="F")
        for dtype in (">i4", "<f8", ">u2", "i1")
        for n, shape in enumerate([(7,), (3, 5), (2, 3, 4), (4, 1), (1, 9), (5, 0, 2), ()])
    }
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    expected = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("=")).reshape(a.shape) for name, a in arrays.items()}
    same(hcq.load(tmp_path / "a.npz", device), expected)
    same(hcq.load(tmp_path / "b.npz", device), expected)
    for name, array in arrays.items():
        np.save(tmp_path / "a.npy", array)
        loaded = hcq.load(tmp_path / "a.npy", device)
        assert loaded.numpy().tobytes() == expected[name].tobytes() and loaded.shape == array.shape, name


def test_arrays_of_a_zip_are_read_side_by_side_and_damage_is_found(tmp_path):
    arrays = {f"t{n}": np.random.default_rng(n).standard_normal(300_000) for n in range(8)}
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    same(hcq.load(path, "CLANG"), arrays)
    data = bytearray(path.read_bytes())
    at = data.index(arrays["t5"].tobytes()[-64:])
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="'t5'"):
        hcq.load(path, "CLANG")
    same(
        hcq.load(path, "CLANG", ["t[0-4]", "t7"]), {name: arrays[name] for name in ("t0", "t1", "t2", "t3", "t4", "t7")}
    )
