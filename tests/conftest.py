"""What all tests share: a compile cache of their own, and how hard hypothesis looks."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from hcq import Device, config
from hcq.drivers import BUILTIN

# Tests, and the processes they start, never read or write the user's compile cache.
_cache = tempfile.TemporaryDirectory(prefix="hcq-test-cache-", ignore_cleanup_errors=True)
os.environ["HCQ_CACHE_DIR"] = _cache.name

# No deadlines: this machine may be busy. Every run tries the same examples, so that a failure is the change's own; the
# full profile, for `.ci/run full`, looks for new ones.
settings.register_profile(
    "quick", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


def pytest_configure(config):
    config.addinivalue_line("markers", "unchecked(why): not to be run with the checks on, HCQ_CHECK")


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
        if name.partition(":")[0] not in BUILTIN or name.startswith("DISK:"):
            Device.close(name)
