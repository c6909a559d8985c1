#!/usr/bin/env bash
# CUDA C of the kinds people write, on the CPU: compiled by NVRTC for several architectures, run by hcq.cudacpu, compared
# with NumPy and SciPy; then once more under HCQ_CUDACPU_CHECK=1, which must find nothing. In a virtual environment of its
# own, which borrows what the active one has, but for NVIDIA's packages: these are looked for in the interpreter's own
# folder. Skipped only where they can't be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/cuda-kernels

if ! why=$(scripts/ci.d/borrowing-venv "$venv" --ignore-installed \
  cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl); then
  echo "skipped: NVIDIA's compilers can't be had: $why"
  exit 0
fi
tests() { "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/clients/cuda/kernels "$@"; }
export HCQ_TEST_CUDA_ARCHITECTURES=all
tests "$@"
HCQ_CUDACPU_CHECK=1 tests -k "not ptxas" "$@"
