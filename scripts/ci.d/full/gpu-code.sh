#!/usr/bin/env bash
# Code for GPUs without a GPU: CUDA C by NVRTC, PTX by ptxas; OpenCL C on PoCL. In a virtual environment of its own, which
# borrows what the active one has. Skipped only where the packages can't be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/gpu-code

# NVIDIA's packages are looked for in the interpreter's own folder: what is borrowed doesn't count.
if ! why=$(scripts/ci.d/borrowing-venv "$venv" --ignore-installed cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-nvcc &&
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check pyopencl pocl-binary-distribution 2>&1 | tail -1); then
  echo "skipped: NVIDIA's compilers and PoCL can't be had: $why"
  exit 0
fi
exec "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/kernels/test_kernels_gpu_code.py tests/kernels/test_kernels_lower.py "$@"
