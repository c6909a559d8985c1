"""hcq.save: what others read, and what is left when it fails."""

import os
import signal

import numpy as np
import pytest
from tensor_files import DEVICES, EVERYTHING, noise, opened_device, same

import hcq
from hcq import dtypes, formats


@pytest.fixture(params=DEVICES)
def device(request):
    with opened_device(request.param) as name:
        yield name


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
    ):
        with pytest.raises(ValueError, match="name"):
            hcq.save(tmp_path / file, {"a": noise(100), name: noise(3)}, **more)
    assert os.listdir(tmp_path) == []


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
