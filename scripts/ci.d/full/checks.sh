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
  run "tests/test_conformance_$device.py"
done
run tests/allocator tests/test_{accesses,buffer,buffer_lifetimes,c_kernels,copy,crash}.py \
  tests/test_{graph,graph_hostile,host_memory,hostile,interop,llvm_grid,llvm_grid_memory,llvm_grid_random,llvm_grid_vectors,loader,memory_in_flight,native_stress,npy,processes}.py \
  tests/test_{queues_python,registry,saved_graph,staging,timeline,watch}.py \
  tests/disk tests/profile tests/test_{examples,demo,kernels_launch,python_device}.py
bash scripts/ci.d/full/clients.sh -q -k "not search_for and not search_compiles" || status=1
exit $status
