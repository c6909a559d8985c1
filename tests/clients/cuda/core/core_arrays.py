"""Arithmetic on arrays: vector add, templates, shapes of launches, shared memory, what kernels say of themselves."""

from __future__ import annotations

import ctypes

import numpy as np
from core_common import BLOCK, compiled, device, download, kernel, lines, upload
from cuda.core import LaunchConfig, launch

ADD = """
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, size_t count) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  for (; i < count; i += size_t(gridDim.x) * blockDim.x) c[i] = a[i] + b[i];
}
"""

SAXPY = """
template <typename T>
__global__ void saxpy(T factor, const T* x, T* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = factor * x[i] + y[i];
}
"""

PLACE = """
extern "C" __global__ void place(unsigned* out) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
           z = blockIdx.z * blockDim.z + threadIdx.z;
  unsigned width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  out[(z * height + y) * width + x] = x | y << 8 | z << 16;
}
"""

REVERSE = """
extern "C" __global__ void reverse(float* data) {
  extern __shared__ float tile[];
  int i = threadIdx.x, last = blockDim.x - 1;
  tile[i] = data[blockIdx.x * blockDim.x + i];
  __syncthreads();
  data[blockIdx.x * blockDim.x + i] = tile[last - i];
}
"""


def example_vector_add():
    gpu, count = device(), 50_000
    stream = gpu.create_stream()
    a, b = (np.random.default_rng(seed).random(count, np.float32) for seed in (1, 2))
    inputs = upload(a, stream), upload(b, stream)
    result = gpu.allocate(a.nbytes, stream=stream)
    launch(stream, lines(count), kernel(ADD, "vector_add"), *inputs, result, np.uint64(count))
    assert (download(result, np.float32, stream) == a + b).all()
    for buffer in (*inputs, result):
        buffer.close(stream)
    stream.close()


def example_saxpy_by_a_template_of_two_types():
    gpu, count = device(), 1000
    stream = gpu.create_stream()
    names = ("saxpy<float>", "saxpy<double>")
    module = compiled(SAXPY, names)
    for name, dtype, scalar in zip(names, (np.float32, np.float64), (ctypes.c_float, ctypes.c_double), strict=True):
        x, y = np.arange(count, dtype=dtype), np.full(count, 0.5, dtype)
        left, right = upload(x, stream), upload(y, stream)
        launch(stream, lines(count), module.get_kernel(name), scalar(1.25), left, right, np.int32(count))
        assert (download(right, dtype, stream) == dtype(1.25) * x + y).all()


def example_launches_in_one_two_and_three_dimensions():
    gpu = device()
    stream, made = gpu.create_stream(), kernel(PLACE, "place")
    for grid, block in ((3, 32), ((2, 3), (8, 4)), ((2, 1, 3), (4, 2, 5))):
        shape = np.ones(3, int)
        for sizes in (grid, block):
            sizes = (sizes,) if isinstance(sizes, int) else sizes
            shape[: len(sizes)] *= sizes
        out = gpu.allocate(int(shape.prod()) * 4, stream=stream)
        launch(stream, LaunchConfig(grid=grid, block=block), made, out)
        z, y, x = np.indices(shape[::-1])
        assert (download(out, np.uint32, stream) == (x | y << 8 | z << 16).ravel()).all()


def example_dynamic_shared_memory():
    gpu = device()
    stream, made = gpu.create_stream(), kernel(REVERSE, "reverse")
    data = np.arange(4 * BLOCK, dtype=np.float32)
    buffer = upload(data, stream)
    launch(stream, LaunchConfig(grid=4, block=BLOCK, shmem_size=4 * BLOCK), made, buffer)
    assert (download(buffer, np.float32, stream) == data.reshape(4, BLOCK)[:, ::-1].ravel()).all()


def example_what_a_kernel_says_of_itself():
    device()
    made = kernel(ADD, "vector_add")
    assert made.num_arguments == 4
    assert [(each.offset, each.size) for each in made.arguments_info] == [(0, 8), (8, 8), (16, 8), (24, 8)]
    attributes = made.attributes
    threads = attributes[None].max_threads_per_block if hasattr(attributes, "__getitem__") else 1024
    assert threads >= BLOCK
    occupancy = made.occupancy
    assert occupancy.max_active_blocks_per_multiprocessor(BLOCK, 0) >= 1
    suggestion = occupancy.max_potential_block_size(0, 0)
    assert suggestion.max_block_size % 32 == 0 and suggestion.min_grid_size >= 1
    assert occupancy.available_dynamic_shared_memory_per_block(1, BLOCK) >= 16 << 10


def example_scalars_of_all_kinds_are_arguments():
    code = """
    extern "C" __global__ void all(double* out, bool a, signed char b, unsigned short c, int d, long long e, float f,
                                   double g) {
      double values[7] = {a ? 1.0 : 0.0, double(b), double(c), double(d), double(e), f, g};
      for (int i = 0; i < 7; ++i) out[i] = values[i];
    }
    """
    gpu = device()
    stream = gpu.create_stream()
    out = gpu.allocate(56, stream=stream)
    given = (True, ctypes.c_int8(-3), np.uint16(65535), np.int32(-5), ctypes.c_int64(1 << 40), np.float32(0.5), 0.25)
    launch(stream, LaunchConfig(grid=1, block=1), kernel(code, "all"), out, *given)
    assert download(out, np.float64, stream).tolist() == [1, -3, 65535, -5, 1 << 40, 0.5, 0.25]
