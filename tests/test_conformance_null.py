"""The conformance suite on NULL."""

from dataclasses import replace

from hcq.testing import known, suite_tests

driver = replace(known("NULL"), exclusions={"copy.large": "CLANG runs it: the same code, and gibibytes take a while"})
globals().update(suite_tests())
