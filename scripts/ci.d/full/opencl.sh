#!/usr/bin/env bash
# The GPU device on Intel's OpenCL runtime for CPUs, alone and beside PoCL: the conformance suite and the device's tests.
# In a virtual environment of its own, which borrows what the active one has (hcq, NumPy, pytest, pyopencl): 276 MB of
# packages, 830 MB of files. Skipped only where they can't be had, or the machine is another.
#
#   scripts/ci.d/full/opencl.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=build/opencl-intel

if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
  echo "skipped: Intel's runtime is for Linux on x86-64"
  exit 0
fi
if ! why=$(scripts/ci.d/borrowing-venv "$venv" --no-compile \
  "intel-opencl-rt>=2026.2" "intel-cmplr-lib-rt>=2026.2"); then
  echo "skipped: Intel's runtime can't be had: $why"
  exit 0
fi

# The loader looks for .icd files in one folder; what the wheel puts there names a path of who built it.
lib="$PWD/$venv/lib"
alone="$venv/alone"
beside="$venv/beside"
mkdir -p "$alone" "$beside"
echo "$lib/libintelocl.so" | tee "$alone/intel.icd" >"$beside/intel.icd"
cp /etc/OpenCL/vendors/*.icd "$beside" 2>/dev/null || true

status=0
on() {  # on FOLDER TESTS...: with the implementations in that folder
  local folder=$1
  shift
  echo "== $(basename "$folder"): $(ls "$folder" | tr '\n' ' ')"
  LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" OCL_ICD_VENDORS="$PWD/$folder" \
    "$venv/bin/python" -m pytest -q -ra -p no:cacheprovider "$@" || status=1
}
tests=(tests/opencl tests/test_across_devices.py)
on "$alone" tests/conformance/test_conformance_gpu.py "${tests[@]}" "$@"
on "$beside" "${tests[@]}" "$@"
exit $status
