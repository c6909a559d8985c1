"""The conformance suite on PYTHON, the strict reference for portable kernels."""

from hcq.testing import suite_tests
from hcq.testing.driver import known

driver = known("PYTHON")

globals().update(suite_tests())
