#!/usr/bin/env bash
# The conformance suite on every device there is here. What takes more than a second is left to `.ci/run full`.
#
#   scripts/ci.d/conformance.sh [options of hcq conformance]    by default --quick
set -uo pipefail
[ $# -gt 0 ] || set -- --quick
failed=()
for device in NULL CLANG CLANG:1 LLVM; do
  echo "-- $device"
  hcq conformance --device "$device" "$@" || failed+=("$device")
done
[ ${#failed[@]} = 0 ] || { echo "not conforming: ${failed[*]}"; exit 1; }
