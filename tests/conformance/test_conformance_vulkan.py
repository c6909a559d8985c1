"""The conformance suite on VULKAN: by lavapipe where there is no GPU, under the validation layer if that is here."""

import os
from dataclasses import replace

import pytest

import hcq
from hcq import _native
from hcq.testing import known, suite_tests

if _native.vulkan_has_validation():
    os.environ.setdefault("HCQ_VULKAN_VALIDATION", "1")

try:
    hcq.Device["VULKAN"].close()
except hcq.errors.DeviceUnavailable as why:
    pytest.skip(f"VULKAN: {why}", allow_module_level=True)

driver = replace(
    known("VULKAN"), exclusions={**known("VULKAN").exclusions, "copy.large": "CLANG runs it: it is the base's"}
)
globals().update(suite_tests())


@pytest.fixture(autouse=True)
def nothing_is_said_by_the_validation_layer():
    yield
    said = _native.vulkan_messages()
    assert not said, "\n\n".join(said[:3])
