"""Where NVIDIA's ptxas is, for tests that ask it what PTX is. It needs no GPU."""

from __future__ import annotations

import glob
import os
import shutil
import sys

import pytest


def ptxas() -> str:
    """Its path; skips the test where there is none."""
    named = os.environ.get("HCQ_TEST_PTXAS")
    packaged = (at for each in sys.path for at in sorted(glob.glob(f"{each}/nvidia/*/bin/ptxas")))
    found = named or next(packaged, None) or shutil.which("ptxas")
    if not found:
        pytest.skip("PTX is checked by ptxas (pip install nvidia-cuda-nvcc)")
    return found
