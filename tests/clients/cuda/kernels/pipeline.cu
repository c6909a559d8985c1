// Copies to shared memory that run beside the work: in groups, with the header's primitives, with a barrier of memory.
#include <cuda_pipeline.h>

#define DEPTH 3

// A running product of rows: while one tile is worked on, two more are under way. n is a multiple of 4 * blockDim.x.
extern "C" __global__ void staged(const float* in, float* out, int tiles) {
  __shared__ __align__(16) float stages[DEPTH][512];
  int four = threadIdx.x * 4;
  auto start = [&](int tile) {
    if (tile < tiles) __pipeline_memcpy_async(&stages[tile % DEPTH][four], in + (size_t)tile * 512 + four, 16);
    __pipeline_commit();
  };
  for (int s = 0; s < DEPTH - 1; s++) start(s);
  for (int tile = 0; tile < tiles; tile++) {
    __pipeline_wait_prior(DEPTH - 2);
    __syncthreads();
    start(tile + DEPTH - 1);
    for (int i = threadIdx.x; i < 512; i += blockDim.x)
      out[(size_t)tile * 512 + i] = stages[tile % DEPTH][i] + stages[tile % DEPTH][511 - i];
    __syncthreads();
  }
}

#if __CUDA_ARCH__ >= 800
// By hand: 4 and 16 bytes, with fewer bytes read than written where the input ends, so that the rest is zero.
extern "C" __global__ void by_hand(const float* in, float* out, int n) {
  __shared__ __align__(16) float small[128], large[512];
  unsigned to = (unsigned)__cvta_generic_to_shared(&small[threadIdx.x]);
  int bytes = threadIdx.x < n ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(in + threadIdx.x), "r"(bytes) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  to = (unsigned)__cvta_generic_to_shared(&large[4 * threadIdx.x]);
  bytes = min(max((n - 4 * (int)threadIdx.x) * 4, 0), 16);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(in + 4 * threadIdx.x), "r"(bytes)
               : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  out[threadIdx.x] = small[127 - threadIdx.x];
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  for (int i = threadIdx.x; i < 512; i += 128) out[128 + i] = large[511 - i];
}
#endif
