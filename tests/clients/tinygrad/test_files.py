"""Files: tinygrad's safe_save and safe_load, and tensors on `disk:`, on hcq's DISK."""

import json
import multiprocessing
import os

import numpy as np
import pytest
from tinygrad import Device, Tensor, dtypes
from tinygrad.nn import Linear
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save

import hcq


def tensors():
    rng = np.random.default_rng(1)
    return {
        "matrix": Tensor(rng.random((300, 777), dtype=np.float32)),
        "odd": Tensor(np.arange(5, dtype=np.uint8)),
        "half": Tensor(rng.random(33).astype(np.float16)),
        "ints": Tensor(np.arange(-7, 7, dtype=np.int32).reshape(2, 7)),
    }


def test_what_safe_save_writes_is_a_safetensors_file_and_safe_load_reads_it(tmp_path):
    path, saved = str(tmp_path / "weights.safetensors"), tensors()
    safe_save(saved, path)
    raw = (tmp_path / "weights.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    for name, tensor in saved.items():
        first, last = header[name]["data_offsets"]
        assert raw[8 + size :][first:last] == tensor.numpy().tobytes()
    for name, loaded in safe_load(path).items():
        assert loaded.device.startswith("DISK:") and isinstance(Device[loaded.device], hcq.Compiled)
        assert (loaded.to(Device.DEFAULT).numpy() == saved[name].numpy()).all()


def test_a_model_is_saved_over_an_older_one_and_loaded(tmp_path):
    path = str(tmp_path / "model.safetensors")
    for _ in range(2):  # the second time the path leads to another file
        model, other = Linear(64, 32), Linear(64, 32)
        safe_save(get_state_dict(model), path)
        load_state_dict(other, safe_load(path), verbose=False)
        assert (other.weight.numpy() == model.weight.numpy()).all()


def test_tensors_on_disk_are_assigned_sliced_and_computed_with(tmp_path):
    device = f"disk:{tmp_path}/numbers"
    Tensor.empty(1000, 10, device=device).assign(Tensor.arange(10_000).reshape(1000, 10).float()).realize()
    assert os.path.getsize(tmp_path / "numbers") == 40_000
    there = Tensor.empty(1000, 10, device=device)
    assert (there[500:502].numpy() == np.arange(5000, 5020).reshape(2, 10)).all()
    assert (there.to(Device.DEFAULT) + 1).sum().item() == pytest.approx(sum(range(1, 10_001)), rel=1e-3)
    assert Tensor.empty(10_000, device=device)[3:4].bitcast(dtypes.uint32).item() == np.float32(3).view(np.uint32)


def test_a_file_that_cannot_be_written_is_read(tmp_path):
    path = tmp_path / "fixed"
    path.write_bytes(bytes(range(64)))
    assert Tensor.empty(64, dtype=dtypes.uint8, device=f"disk:{path}?mode=r").tolist() == list(range(64))
    with pytest.raises(PermissionError):
        Tensor.empty(64, dtype=dtypes.uint8, device=f"disk:{path}?mode=r").assign(
            Tensor.zeros(64, dtype=dtypes.uint8).contiguous()
        ).realize()


def child(name):
    shared = Tensor.empty(16, dtype=dtypes.uint8, device=f"disk:shm:{name}")
    shared.assign((shared.to(Device.DEFAULT) + 1).realize()).realize()


def test_two_processes_share_a_segment():
    name = f"hcq-tinygrad-{os.getpid()}"
    shared = Tensor.empty(16, dtype=dtypes.uint8, device=f"disk:shm:{name}")
    shared.assign(Tensor(np.arange(16, dtype=np.uint8))).realize()
    other = multiprocessing.get_context("spawn").Process(target=child, args=(name,))
    other.start()
    other.join(100)
    assert other.exitcode == 0
    assert shared.tolist() == list(range(1, 17))
    if os.path.exists(f"/dev/shm/{name}"):
        os.unlink(f"/dev/shm/{name}")
