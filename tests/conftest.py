"""What all tests share: a compile cache of their own, and how hard hypothesis looks."""

import os
import tempfile

from hypothesis import HealthCheck, settings

# Tests, and the processes they start, never read or write the user's compile cache.
_cache = tempfile.TemporaryDirectory(prefix="hcq-test-cache-", ignore_cleanup_errors=True)
os.environ["HCQ_CACHE_DIR"] = _cache.name

# No deadlines: this machine may be busy. Every run tries the same examples, so that a failure is the change's own; the
# full profile, for `.ci/run full`, looks for new ones.
settings.register_profile(
    "quick", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
