#!/usr/bin/env bash
# Every row of the budgets beside its peers and the raw cost. Figures are kept, not judged: this machine may be busy.
set -euo pipefail
mkdir -p build
exec python -m benchmarks --json build/benchmarks.json
