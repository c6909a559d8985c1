"""The conformance suite, as a pytest plugin (`pytest -p hcq.testing`), and fault injection.

A driver describes itself with `DriverUnderTest`; the suite in `hcq.testing.suite` is written once and runs on every
driver. `hcq conformance --device MINE` runs it (conformance.py). `inject` makes a device fail or stall on purpose.
What the suite holds a driver to is listed in promises.toml. Importing this module imports neither pytest nor a driver.
"""

from __future__ import annotations

from hcq.testing.driver import DriverUnderTest, known
from hcq.testing.injection import inject
from hcq.testing.marks import needs, promise

__all__ = ["DriverUnderTest", "inject", "known", "needs", "promise", "suite_tests"]

# pytest loads the hooks and fixtures from there when this module is named with -p.
pytest_plugins = ["hcq.testing.plugin", "hcq.testing.after_failure"]


def suite_tests() -> dict[str, object]:
    """All tests of the suite by name, for a test module of a driver: `globals().update(suite_tests())`.

    That module also needs a global `driver`, a DriverUnderTest. Imports pytest and the suite.
    """
    from hcq.testing.suite import all_tests

    return all_tests()
