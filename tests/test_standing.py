"""A test that fails and leaves a queue standing costs the tests after it nothing: shown by a pytest of its own."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough

STANDS = """
import pytest
from hcq import Device, HCQSignal

seen = {}

@pytest.fixture
def dev():
    device = Device["DEVICE"]
    yield device
    device.synchronize()

def test_that_leaves_a_queue_standing(dev):
    seen["gate"], seen["dev"] = dev.signal_t(), dev
    dev.enqueue(lambda signal, value: dev.hw_compute_queue_t().wait(seen["gate"], 1).signal(signal, value))
    dev.hw_copy_queue_t().wait(seen["gate"], 1).submit(dev)
    assert False, "on purpose"

def test_after_it(dev):
    assert dev is not seen["dev"] and seen["dev"].closed and dev.lost in (None, False)
    done = dev.signal_t()
    dev.hw_compute_queue_t().signal(done, 1).submit(dev)
    done.wait(1)

def test_that_fails_and_leaves_nothing(dev):
    seen["dev"] = dev
    assert False, "on purpose"

def test_after_that(dev):
    assert dev is seen["dev"], "what a test left at rest stays open"

def test_that_fails_in_its_end(request):
    seen["dev"] = dev = Device["DEVICE"]
    request.addfinalizer(lambda: 1 / 0)
    request.addfinalizer(lambda: dev.hw_compute_queue_t().wait(seen["gate"], 2).submit(dev))

def test_after_the_end(dev):
    assert dev is not seen["dev"]
"""


@pytest.mark.parametrize("device", ["CLANG", "NULL", "PYTHON"])
def test_a_queue_that_a_failed_test_leaves_standing_is_closed_with_its_device(device, tmp_path):
    (tmp_path / "test_stands.py").write_text(STANDS.replace("DEVICE", device))
    paths = filter(None, map(os.path.abspath, sys.path))
    command = f"-m pytest -q -p hcq.testing -p no:cacheprovider --rootdir {tmp_path} {tmp_path}"
    done = subprocess.run(
        [sys.executable, *command.split()],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HCQ_TIMEOUT_MS": "100000"},
    )
    assert re.search(r"^2 failed, 4 passed, 2 errors", done.stdout, re.M), done.stdout
    assert done.stdout.count(f"closed, for they were lost or stood: {device}\n") >= 2, done.stdout
    assert not done.stderr
