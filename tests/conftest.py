"""What all tests share: a compile cache of their own, how hard hypothesis looks, and that a failed test leaves no
device standing for the next ones to wait for."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from hcq import Device, config
from hcq.drivers import BUILTIN
from hcq.testing import standing

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


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """After a failure: what stands is lost before fixtures wait for it, and closed after them."""
    failed = item.stash.get(FAILED, False)
    lost = standing.lose_restless() if failed else []
    try:
        yield
    except BaseException:
        failed = True
        raise
    finally:
        if failed:
            lost += standing.lose_restless()
            if closed := ", ".join(standing.close(lost)):
                item.add_report_section("teardown", "devices", f"closed, for they were lost or stood: {closed}")


@pytest.fixture(scope="module", autouse=True)
def no_driver_outlives_its_module():
    """Devices of drivers that a module brought, and its files, are closed after it: the next may bring one of that
    name, and counts what is open."""
    yield
    for name in list(Device._opened):
        if name.partition(":")[0] not in set(BUILTIN) - {"DISK"}:
            Device.close(name)
