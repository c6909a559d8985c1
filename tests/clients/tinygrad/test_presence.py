"""tinygrad is served by hcq: its device layer is ours, and the rest its own. Where there is no tinygrad it says so."""

import os
import sys

import pytest
from hcq_tinygrad_hook import HERE, why_not

if reason := why_not():
    pytest.skip(reason, allow_module_level=True)

import tinygrad
from tinygrad import Device, Tensor

import hcq

OTHERS = ["tinygrad.runtime.ops_cuda", "tinygrad.runtime.support.elf", "tinygrad.runtime.autogen.kfd"]


def test_a_first_program_runs_on_our_queues():
    before = Device["CLANG"].timeline_value
    assert (Tensor([1, 2, 3], device="CLANG") + 1).tolist() == [2, 3, 4]
    assert isinstance(Device["CLANG"], hcq.HCQCompiled)
    assert Device["CLANG"].timeline_value > before


def test_nothing_of_tinygrads_device_layer_is_loaded():
    own = os.path.dirname(tinygrad.__file__)
    layer = [name for name in sys.modules if name == "tinygrad.device" or name.startswith("tinygrad.runtime.ops_")]
    assert "tinygrad.device" in layer
    for name in layer:
        assert sys.modules[name].__file__.startswith(os.path.join(HERE, "served"))
    assert sys.modules["tinygrad.tensor"].__file__.startswith(own)


@pytest.mark.parametrize("name", OTHERS)
def test_tinygrads_other_drivers_cannot_be_imported(name):
    with pytest.raises(ModuleNotFoundError, match="devices are hcq's here"):
        __import__(name)


def test_a_device_that_hcq_does_not_have_yet_says_so_when_it_is_needed():
    tensor = Tensor.empty(4, device="METAL")  # naming it costs nothing
    with pytest.raises(hcq.errors.DeviceUnavailable, match="not built yet"):
        tensor.contiguous().realize().numpy()
    assert (Tensor([1]) + 1).item() == 2


def test_no_device_is_chosen_that_tinygrad_would_not_choose():
    assert Device.DEFAULT in ("CLANG", "LLVM")
    assert {"CLANG", "LLVM", "NPY", "DISK", "PYTHON", "AMD", "NV"} <= set(Device._devices)
    assert Device.canonicalize("clang:0") == "CLANG"


def test_tinygrads_interpreter_is_not_there_and_says_so():
    with pytest.raises(hcq.errors.DeviceUnavailable, match="runs no kernels"):
        (Tensor(b"abc", device="PYTHON") + 1).realize()
