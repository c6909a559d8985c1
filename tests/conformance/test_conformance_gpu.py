"""The conformance suite on GPU: OpenCL, by PoCL where there is nothing faster."""

import os
from dataclasses import replace

import pytest

os.environ.setdefault("POCL_DEVICES", "pthread pthread")  # two devices of PoCL's, so that GPU has a peer

import hcq
from hcq.testing import known, suite_tests

try:
    hcq.Device["GPU"].close()
except hcq.errors.DeviceUnavailable as why:
    pytest.skip(f"GPU: {why}", allow_module_level=True)

driver = replace(known("GPU"), exclusions={**known("GPU").exclusions, "copy.large": "CLANG runs it: it is the base's"})
globals().update(suite_tests())
