#!/usr/bin/env bash
# Shows that the tests of hcq.cudacpu notice what is broken on purpose in its sources: as many
# of the breakages as half an hour is enough for, others each time. Native code is built anew for each, by tools in a
# virtual environment of its own, which borrows what the active one has.
#
#   scripts/ci.d/full/cuda-breakages.sh [arguments of tests/breakages/run.py]
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/breakages-tools

if ! why=$(scripts/ci.d/borrowing-venv "$venv" 'nanobind<3' cmake ninja); then
  echo "skipped: the build tools can't be had: $why"
  exit 0
fi
export PATH="$PWD/$venv/bin:$PATH"
[ $# != 0 ] || set -- --seconds 1800
exec python tests/breakages/run.py "$@"
