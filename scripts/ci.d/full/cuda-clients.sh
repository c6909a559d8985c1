#!/usr/bin/env bash
# Programs of CUDA that were not written for hcq, on its CUDA driver for the CPU: cuda.core with what it needs, in a
# virtual environment of its own, which borrows what the active one has (hcq, NumPy, pytest, NVRTC). Skipped only where
# the packages can't be had.
#
#   scripts/ci.d/full/cuda-clients.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/cuda-clients

# NVIDIA's packages are looked for beside each other, so that all are here.
if ! why=$(scripts/ci.d/borrowing-venv "$venv" --ignore-installed "cuda-core==1.2.*" \
  "cuda-bindings>=13,<14" "nvidia-cuda-nvrtc>=13,<14" "nvidia-cuda-runtime>=13,<14" "nvidia-cuda-cccl>=13,<14"); then
  echo "skipped: cuda.core 1.2 and what it needs can't be had: $why"
  exit 0
fi
exec "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/clients/cuda/core "$@"
