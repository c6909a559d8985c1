"""Traces: what ran on every device and what the host did meanwhile, as files for Perfetto, tables and pictures.

`with hcq.profile(path) as p:` and `PROFILE=1` are the ways in (session, environment). docs/design/traces.md says who
writes what. What does not live here: writing records (native/core/record*, hcq.queues.profile).
"""

from hcq.profiling.session import Profile as Profile
from hcq.profiling.session import profile as profile
from hcq.profiling.spans import Span as Span
