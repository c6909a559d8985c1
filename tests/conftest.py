"""What all tests share: a compile cache of their own, and how hard hypothesis looks."""

import os
import tempfile

from hypothesis import HealthCheck, settings

# Tests, and the processes they start, never read or write the user's compile cache.
_cache = tempfile.TemporaryDirectory(prefix="hcq-test-cache-", ignore_cleanup_errors=True)
os.environ["HCQ_CACHE_DIR"] = _cache.name

# No deadlines: this machine may be busy. The full profile is for `.ci/run full`.
settings.register_profile("quick", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
