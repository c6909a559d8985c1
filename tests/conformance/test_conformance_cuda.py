"""The conformance suite on CUDA: NVIDIA's driver where HCQ_CUDA=auto says so, else hcq.cudacpu."""

import os
from dataclasses import replace

import pytest

import hcq
from hcq import config
from hcq.testing import known, suite_tests

CHOSEN = {"HCQ_CUDA": os.environ.get("HCQ_CUDA", "cpu"), "HCQ_CUDACPU_DEVICES": "2"}  # so that CUDA has a peer

with pytest.MonkeyPatch.context() as patch:
    for name, value in CHOSEN.items():
        patch.setenv(name, value)
    try:
        hcq.Device["CUDA"].close()
    except hcq.errors.DeviceUnavailable as why:
        pytest.skip(f"CUDA: {why}", allow_module_level=True)
    told = known("CUDA")
    on_cpu = config.CUDA() == "cpu"


@pytest.fixture(scope="module", autouse=True)
def whose_driver():
    """The driver of this process and of those that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CHOSEN.items():
            patch.setenv(name, value)
        yield


never = {}
if on_cpu:
    never["copy.large"] = "CLANG runs it: it is the base's"
driver = replace(told, exclusions={**told.exclusions, **never})
globals().update(suite_tests())
