#!/usr/bin/env bash
# Shows that the tests of hcq.cudacpu notice what is broken on purpose in its sources: as many
# of the breakages as half an hour is enough for, others each time. Native code is built anew for each, by tools in a
# virtual environment of its own, which borrows what the active one has.
#
#   scripts/ci.d/full/cuda-breakages.sh [arguments of tests/breakages/run.py]
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/breakages-tools
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'

python -m venv --clear "$venv"
python -c "$purelib" >"$("$venv/bin/python" -c "$purelib")/borrowed.pth"
if ! log=$("$venv/bin/python" -m pip install -qq --disable-pip-version-check 'nanobind<3' cmake ninja 2>&1); then
  echo "skipped: the build tools can't be had: $(tail -1 <<<"$log")"
  exit 0
fi
export PATH="$PWD/$venv/bin:$PATH"
[ $# != 0 ] || set -- --seconds 1800
exec python tests/breakages/run.py "$@"
