"""Programs: compiled, linked, loaded from PTX, kept in a cache, launched together, printing; what goes wrong."""

from __future__ import annotations

import ctypes
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
from core_common import BLOCK, compiled, device, download, kernel, lines, upload
from cuda.core import LaunchConfig, Linker, LinkerOptions, ObjectCode, Program, ProgramOptions, launch
from cuda.core.utils import InMemoryProgramCache
from cuda.pathfinder import locate_nvidia_header_directory

DOUBLE = """
extern "C" __global__ void twice(int* data, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] *= 2;
}
"""
COUNT = 1000


def run_twice(made):
    gpu = device()
    stream = gpu.create_stream()
    data = upload(np.arange(COUNT, dtype=np.int32), stream)
    launch(stream, lines(COUNT), made, data, np.int32(COUNT))
    assert (download(data, np.int32, stream) == 2 * np.arange(COUNT)).all()


def example_object_code_from_ptx():
    device()
    made = compiled(DOUBLE)
    assert made.code_type == "ptx"
    run_twice(ObjectCode.from_ptx(bytes(made.code)).get_kernel("twice"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "twice.ptx"
        path.write_bytes(bytes(made.code))
        run_twice(ObjectCode.from_ptx(str(path)).get_kernel("twice"))
    run_twice(pickle.loads(pickle.dumps(made)).get_kernel("twice"))


def example_a_program_of_ptx():
    device()
    text = bytes(compiled(DOUBLE).code).decode().rstrip("\0")
    linked = Program(text, code_type="ptx", options=ProgramOptions(arch=f"sm_{device().arch}")).compile("cubin")
    run_twice(linked.get_kernel("twice"))


def example_object_codes_are_linked():
    gpu = device()
    main = """
    extern __device__ int apply(int value);
    extern "C" __global__ void every(int* data, int count) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) data[i] = apply(data[i]);
    }
    """
    function = "__device__ int apply(int value) { return value * 3 + 1; }"
    parts = [compiled(code, relocatable_device_code=True) for code in (main, function)]
    linked = Linker(*parts, options=LinkerOptions(arch=f"sm_{gpu.arch}")).link("cubin")
    stream = gpu.create_stream()
    data = upload(np.arange(COUNT, dtype=np.int32), stream)
    launch(stream, lines(COUNT), linked.get_kernel("every"), data, np.int32(COUNT))
    assert (download(data, np.int32, stream) == 3 * np.arange(COUNT) + 1).all()


def example_a_cooperative_launch_whose_blocks_wait_for_each_other():
    code = """
    #include <cooperative_groups.h>
    namespace groups = cooperative_groups;
    extern "C" __global__ void rounds(int* data, int* sums, int count) {
      groups::grid_group grid = groups::this_grid();
      for (int round = 0; round < 4; ++round) {
        int next = (int(grid.thread_rank()) + blockDim.x) % count;
        int seen = data[next];
        grid.sync();
        data[grid.thread_rank()] = seen + 1;
        grid.sync();
      }
      if (grid.thread_rank() == 0) *sums = int(grid.num_threads());
    }
    """
    gpu = device()
    include = str(locate_nvidia_header_directory("cudart").abs_path)
    made = kernel(code, "rounds", include_path=(include, include + "/cccl"))
    stream, blocks = gpu.create_stream(), 2
    count = blocks * BLOCK
    start = np.arange(count, dtype=np.int32)
    data, sums = upload(start, stream), upload(np.zeros(1, np.int32), stream)
    launch(stream, LaunchConfig(grid=blocks, block=BLOCK, is_cooperative=True), made, data, sums, np.int32(count))
    assert (download(data, np.int32, stream) == np.roll(start, -4 * BLOCK) + 4).all()
    assert download(sums, np.int32, stream)[0] == count


def example_programs_are_kept_in_a_cache():
    gpu, cache = device(), InMemoryProgramCache()
    for _ in range(2):
        program = Program(DOUBLE, code_type="c++", options=ProgramOptions(arch=f"compute_{gpu.arch}"))
        run_twice(program.compile("ptx", cache=cache).get_kernel("twice"))


def example_kernels_print():
    code = r"""
    #include <cstdio>
    extern "C" __global__ void say(int number) { printf("thread %d says %d and %.2f\n", threadIdx.x, number, 0.5); }
    """.replace("#include <cstdio>", "")
    gpu = device()
    stream = gpu.create_stream()
    made = kernel(code, "say")
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            launch(stream, LaunchConfig(grid=1, block=2), made, np.int32(42))
            stream.sync()
            ctypes.CDLL(None).fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        said = sorted(file.read().decode().splitlines())
    assert said == ["thread 0 says 42 and 0.50", "thread 1 says 42 and 0.50"]


def example_mistakes_are_told_of():
    gpu = device()
    stream = gpu.create_stream()
    try:
        compiled('extern "C" __global__ void bad() { undeclared = 1; }')
    except Exception as error:
        assert "undeclared" in str(error)
    else:
        raise AssertionError("nonsense was compiled")
    try:
        compiled(DOUBLE).get_kernel("thrice")
    except Exception as error:
        assert "NOT_FOUND" in str(error), error
    else:
        raise AssertionError("a kernel was found that there is not")
    try:
        launch(stream, LaunchConfig(grid=1, block=2048), kernel(DOUBLE, "twice"), 0, np.int32(0))
    except Exception as error:
        assert "INVALID_VALUE" in str(error), error
    else:
        raise AssertionError("a block of 2048 threads was launched")
    stream.sync()
    cubin = Program(DOUBLE, code_type="c++", options=ProgramOptions(arch=f"sm_{gpu.arch}")).compile("cubin")
    try:
        cubin.get_kernel("twice")
    except Exception as error:
        assert "NO_BINARY_FOR_GPU" in str(error), error
    else:
        raise AssertionError("a cubin was loaded")
