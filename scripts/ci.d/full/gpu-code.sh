#!/usr/bin/env bash
# Code for GPUs without a GPU: CUDA C by NVRTC, PTX by ptxas; OpenCL C on PoCL. In a virtual environment of its own, which
# borrows what the active one has. Skipped only where the packages can't be had.
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/gpu-code
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'

python -m venv --clear "$venv"
python -c "$purelib" >"$("$venv/bin/python" -c "$purelib")/borrowed.pth"
# NVIDIA's packages are looked for in the interpreter's own folder: what is borrowed doesn't count.
install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }
if ! log=$(install --ignore-installed cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-nvcc 2>&1 &&
  install pyopencl pocl-binary-distribution 2>&1); then
  echo "skipped: NVIDIA's compilers and PoCL can't be had: $(tail -1 <<<"$log")"
  exit 0
fi
exec "$venv/bin/python" -m pytest -ra -p no:cacheprovider tests/kernels/test_kernels_gpu_code.py tests/kernels/test_kernels_lower.py "$@"
