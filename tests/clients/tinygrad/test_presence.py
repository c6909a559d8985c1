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
