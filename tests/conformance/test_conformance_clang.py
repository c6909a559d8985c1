"""The conformance suite on CLANG."""

from hcq.testing import known, suite_tests

driver = known("CLANG")
globals().update(suite_tests())
