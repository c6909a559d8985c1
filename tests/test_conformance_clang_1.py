"""The conformance suite on CLANG:1."""

from dataclasses import replace

from hcq.testing import known, suite_tests

driver = replace(known("CLANG:1"), exclusions={"copy.large": "CLANG runs it: it is the same code"})
globals().update(suite_tests())
