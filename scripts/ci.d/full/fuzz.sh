#!/usr/bin/env bash
# The tests that hypothesis drives, with many more examples than in every run.
set -euo pipefail
exec python -m pytest -ra -p no:cacheprovider --timeout=1800 -m hypothesis --hypothesis-profile=full
