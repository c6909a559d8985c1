"""Each test of the suite is shown to fail: on the null device with its promise broken (hcq.testing.breakages)."""

import pytest

from hcq.testing import breakages, known, suite_tests

pytestmark = pytest.mark.thorough
driver = known("NULL")
mutants = True
tests = suite_tests()
globals().update({name: it for name, it in tests.items() if not name.startswith("test_") or breakages.of_test(name)})
