// The C++ library of CUDA: atomics with orders and scopes, barriers, spans and arrays in kernels.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/limits>

// Messages handed from block to block by a flag that is released and acquired.
extern "C" __global__ void messages(int* data, int* flag, int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> turn(*flag);
  if (threadIdx.x == 0) {
    while (turn.load(cuda::memory_order_acquire) != (int)blockIdx.x) {
    }
    out[blockIdx.x] = *data;
    *data = *data * 3 + blockIdx.x;
    turn.store(blockIdx.x + 1, cuda::memory_order_release);
  }
}

extern "C" __global__ void counters(unsigned* a, long long* b, int* c) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_block> add(a[0]);
  cuda::atomic_ref<long long, cuda::thread_scope_system> most(b[0]);
  cuda::atomic_ref<int> swapped(c[0]);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  add.fetch_add(i, cuda::memory_order_relaxed);
  most.fetch_max((long long)i << 33);
  int seen = swapped.load();
  while (!swapped.compare_exchange_weak(seen, seen + 2, cuda::memory_order_acq_rel)) {
  }
}

extern "C" __global__ void stages(const int* in, int* out, int rounds) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(Barrier) unsigned char room[sizeof(Barrier)];
  __shared__ int values[64];
  Barrier* barrier = (Barrier*)room;
  if (threadIdx.x == 0) init(barrier, blockDim.x);
  __syncthreads();
  int value = in[threadIdx.x];
  for (int r = 0; r < rounds; r++) {
    values[threadIdx.x] = value;
    barrier->arrive_and_wait();
    value += values[63 - threadIdx.x];
    barrier->wait(barrier->arrive());
  }
  out[threadIdx.x] = value;
}

extern "C" __global__ void polynomials(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  cuda::std::array<float, 4> c = {1.0f, -2.0f, 0.5f, 0.25f};
  cuda::std::complex<float> z(in[2 * i], in[2 * i + 1]), sum = 0.0f;
  for (float each : c) sum = sum * z + each;
  out[2 * i] = sum.real();
  out[2 * i + 1] = cuda::std::abs(sum) > cuda::std::numeric_limits<float>::max() ? 0.0f : sum.imag();
}
