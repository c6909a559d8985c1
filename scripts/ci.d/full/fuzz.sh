#!/usr/bin/env bash
# The tests that hypothesis drives, with many more examples than in every run; and headers of files, by atheris.
set -euo pipefail
if python -c 'import atheris' 2>/dev/null || python -m pip install --quiet atheris; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  script=$PWD/tests/fuzz/formats.py
  (cd "$folder" && TMPDIR=$folder python "$script" 120)
else
  echo "skipped: the package atheris can't be installed here"
fi
python -m pytest -ra -p no:cacheprovider -n "$(nproc)" --dist worksteal --timeout=1800 -m hypothesis --hypothesis-profile=full
