"""The conformance suite on CLANG:1."""

from dataclasses import replace

from hcq.testing import known, suite_tests

driver = replace(
    known("CLANG:1"), exclusions={"copy.large": "CLANG runs it: the same code, and gibibytes take a while"}
)
globals().update(suite_tests())
