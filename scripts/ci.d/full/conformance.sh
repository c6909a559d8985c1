#!/usr/bin/env bash
# The whole conformance suite on every device; on a CPU device also with host copies going through the staging ring.
set -uo pipefail
status=0
scripts/ci.d/conformance.sh --no-quick || status=1
echo "-- CLANG, staging"
HCQ_FORCE_STAGING=1 hcq conformance --device CLANG || status=1
exit $status
