#!/usr/bin/env bash
# Programs that were not written for hcq: tinygrad 0.9.2 with hcq as its device layer, in a virtual environment of its
# own, which borrows what the active one has (hcq, NumPy, pytest). Skipped only where the package can't be had.
#
#   scripts/ci.d/clients.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=build/clients

python -m venv --clear "$venv"
python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$venv/bin/python" -c \
  'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
if ! log=$("$venv/bin/python" -m pip install -qq --disable-pip-version-check tinygrad==0.9.2 2>&1); then
  echo "skipped: tinygrad 0.9.2 can't be had: $(tail -1 <<<"$log")"
  exit 0
fi
"$venv/bin/python" -m pip install -qq --disable-pip-version-check scikit-learn
exec "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/clients/tinygrad "$@"
