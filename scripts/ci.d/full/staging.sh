#!/usr/bin/env bash
# The conformance suite once more, with the CPU devices' host copies going through the staging ring.
set -uo pipefail
status=0
for device in CLANG LLVM; do
  HCQ_FORCE_STAGING=1 hcq conformance --device "$device" || status=1
done
exit $status
