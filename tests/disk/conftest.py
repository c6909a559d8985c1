"""Files, segments and engines for the tests of DISK; what they opened is closed after each."""

from __future__ import annotations

import contextlib
import os

import pytest
from disk_tools import data_of

from hcq import Device, _native


@pytest.fixture(autouse=True)
def closed_afterwards():
    yield
    for name in Device.opened:
        if name.startswith("DISK"):
            Device.close(name)


@pytest.fixture(params=["CLANG", "NULL"])
def device(request):
    return request.param


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(data_of(100_003))
    return path


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(data_of(3_000_001, 3))
    return path


@pytest.fixture
def segment():
    name = f"hcq-test-{os.getpid()}"
    yield name
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"/dev/shm/{name}")


@pytest.fixture(params=["uring", "threads"])
def engine(request, monkeypatch):
    if request.param == "uring" and not _native.disk_has_uring():
        pytest.skip("this system has no io_uring for us")
    monkeypatch.setenv("HCQ_DISK_ENGINE", request.param)
    yield request.param
    _native.disk_disturb(0, 0, 0)
    monkeypatch.undo()
    _native.disk_engine("auto")
