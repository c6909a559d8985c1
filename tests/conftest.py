"""What all tests share: a compile cache of their own, how hard hypothesis looks, and what is closed between modules."""

import faulthandler
import fcntl
import gc
import os
import tempfile
import time

import pytest
from hypothesis import HealthCheck, settings

from hcq import Device, config
from hcq.drivers import BUILTIN

# Tests, and the processes they start, never read or write the user's compile cache.
_cache = tempfile.TemporaryDirectory(prefix="hcq-test-cache-", ignore_cleanup_errors=True)
os.environ["HCQ_CACHE_DIR"] = _cache.name
os.environ.pop("COLUMNS", None)  # nor are their tables as wide as the terminal, or what pytest-xdist takes for one

# No deadlines: this machine may be busy. Every run tries the same examples, so that a failure is the change's own; the
# full profile, for `.ci/run full`, looks for new ones.
settings.register_profile(
    "quick", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


# pytest-timeout ends a test after two minutes where Python still runs. Where it doesn't, all threads are shown.
SHOWN_AFTER = 200
_stderr = pytest.StashKey[int]()
_armed = pytest.StashKey[float]()


def pytest_configure(config):
    config.addinivalue_line("markers", "unchecked(why): not to be run with the checks on, HCQ_CHECK")
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[_stderr] = os.dup(2)


def pytest_collection_finish():
    """Tests collect garbage to see what goes: not among all that thousands of tests are made of."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    stash, now = item.config.stash, time.monotonic()
    if now - stash.get(_armed, 0.0) > 30:  # not for each test: it starts a thread
        faulthandler.dump_traceback_later(SHOWN_AFTER, file=stash[_stderr])
        stash[_armed] = now


def pytest_unconfigure(config):
    faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker("unchecked")
        if mark is not None and config.CHECK() not in (None, "", "0"):
            item.add_marker(pytest.mark.skip(reason=f"not under the checks: {mark.args[0]}"))


@pytest.fixture(scope="module", autouse=True)
def no_driver_outlives_its_module():
    """Devices of drivers that a module brought, and its files, are closed after it: the next may bring one of that
    name, and counts what is open."""
    yield
    for name in list(Device._opened):
        if name.partition(":")[0] not in set(BUILTIN) - {"DISK"}:
            Device.close(name)


@pytest.fixture(autouse=True)
def gibibytes_one_at_a_time(request, tmp_path_factory):
    """Of tests that need GiB of memory one runs at a time, whatever other processes test."""
    if request.node.get_closest_marker("gibibytes") is None:
        yield
        return
    with open(tmp_path_factory.getbasetemp().parent / "gibibytes.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
