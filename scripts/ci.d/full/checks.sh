#!/usr/bin/env bash
# The tests once more with the checks on: they must find nothing. What races on purpose, or counts what the checks take,
# is marked `unchecked` with the reason and skipped. Left out are files that look at the checks themselves, or run no
# device in this process; and of tinygrad's tests its search for kernels, which times them on memory that nobody wrote.
set -uo pipefail
cd "$(dirname "$0")/../../.."
status=0
export HCQ_CHECK=1
run() { python -m pytest -q -p no:cacheprovider "$@" || status=1; }

for device in clang llvm null mini; do
  run "tests/conformance/test_conformance_$device.py"
done
run tests/allocator tests/disk tests/profile tests/graph/test_{graph,graph_hostile,saved_graph}.py \
  tests/llvm/test_llvm_grid{,_memory,_random,_vectors}.py tests/checks/test_watch.py tests/kernels/test_kernels_launch.py \
  tests/test_{accesses,buffer,buffer_lifetimes,c_kernels,copy,crash,demo,examples,host_memory,hostile,interop,loader}.py \
  tests/test_{memory_in_flight,native_stress,npy,processes,python_device,queues_python,registry,staging,timeline}.py
bash scripts/ci.d/full/clients.sh -q -k "not search_for and not search_compiles" || status=1
exit $status
