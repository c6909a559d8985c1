#!/usr/bin/env bash
# Programs that were not written for hcq: tinygrad 0.9.2 with hcq as its device layer, in a virtual environment of its
# own, which borrows what the active one has (hcq, NumPy, pytest). Skipped only where the package can't be had.
#
#   scripts/ci.d/full/clients.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/clients
install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }

if ! why=$(scripts/ci.d/borrowing-venv "$venv" tinygrad==0.9.2); then
  echo "skipped: tinygrad 0.9.2 can't be had: $why"
  exit 0
fi
install scikit-learn
# What tinygrad's own LLVM device calls, for its results without hcq; where there is none for this Python, its C device's.
install --no-deps --target "$venv/llvmlite-of-its-time" "llvmlite==0.43.*" || true
exec "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/clients/tinygrad "$@"
