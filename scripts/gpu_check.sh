#!/usr/bin/env bash
# Checks the driver CUDA on this machine: what it finds, the conformance suite, the tests of the driver, and a table of
# what things cost beside cuda-bindings, cuda.core, CuPy and torch, where those are installed. Under five minutes.
#
#   scripts/gpu_check.sh [FILE]      the table goes to FILE, by default gpu_check.md
#
# On a machine that has NVIDIA's driver, Python, a C++ compiler and nothing else:
#
#   python3 -m venv .venv && . .venv/bin/activate && pip install '.[cuda,test]'
#   pip install 'cuda-core>=1.2,<1.3' cupy-cuda13x torch      # as you like: what is not there, or fails, is left out
#
# Uses the active Python, with hcq[cuda,test] in it. HCQ_CUDA=cpu runs it without a GPU, for the script's own sake. Ends
# with 1 where a test failed, with 2 where CUDA can't be opened.
set -euo pipefail
cd "$(dirname "$0")/.."
table=${1:-gpu_check.md}
export HCQ_CUDA=${HCQ_CUDA:-auto}
if compgen -G 'src/hcq/_native*.so' >/dev/null; then  # built in place; else what pip installed
  export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
fi
python=${PYTHON:-$(command -v python || command -v python3)}

echo "== what is here =="
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current --format=csv ||
    echo "nvidia-smi does not work here"
fi
"$python" - <<'EOF' || exit 2
import hcq

try:
    device = hcq.Device["CUDA"]
except hcq.errors.DeviceUnavailable as why:
    raise SystemExit(f"CUDA can't be opened: {why}")
for what, value in device.info.items():
    print(f"{what}: {value}")
EOF

status=0
step() {  # step NAME SECONDS COMMAND...
  local name=$1 limit=$2 code=0
  shift 2
  echo "== $name =="
  timeout "$limit" "$@" || code=$?
  [[ $code = 0 ]] || status=1
  [[ $code != 124 ]] || echo "$name: not over after $limit s, what came so far is above"
}
step "conformance" 150 "$python" -m pytest -q -p no:cacheprovider --timeout 60 tests/conformance/test_conformance_cuda.py
step "the driver's own tests" 60 "$python" -m pytest -q -p no:cacheprovider --timeout 30 -m "not thorough" tests/cuda
step "what it costs" 80 "$python" -m benchmarks.cuda "$table"
[[ ! -s $table ]] || echo "the table is in $table"
exit $status
