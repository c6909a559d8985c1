"""After a test that failed: devices that it left standing or lost are closed, so that no later test waits for them.

The failed test's report names them. What does not live here: telling which they are, and closing them (standing).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from hcq.testing import standing

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """What stands is lost before fixtures wait for it, and closed after them."""
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
