"""The conformance suite on MINI, a third party's driver in pure Python (tests/third_party)."""

from third_party.suite import driver  # noqa: F401  the tests look for it here

from hcq.testing import suite_tests

globals().update(suite_tests())
