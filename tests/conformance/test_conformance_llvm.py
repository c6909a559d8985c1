"""The conformance suite on LLVM."""

from dataclasses import replace

from hcq.testing import known, suite_tests

driver = replace(known("LLVM"), exclusions={"copy.large": "CLANG runs it: it is the same code"})
globals().update(suite_tests())
