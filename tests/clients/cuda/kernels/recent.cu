// What compute capability 9.0 has: numbers of eight bits, copies in bulk with a barrier that counts bytes, one thread of
// a warp elected, a cluster of one block, the whole grid's barrier.
#include <cooperative_groups.h>
#include <cuda_fp8.h>
namespace cg = cooperative_groups;

extern "C" __global__ void eight_bits(const float* in, unsigned char* out, float* back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_fp8_e4m3 a(in[i]);
  __nv_fp8_e5m2 b(in[i]);
  out[2 * i] = a.__x;
  out[2 * i + 1] = b.__x;
  back[2 * i] = (float)a;
  back[2 * i + 1] = (float)b;
}

extern "C" __global__ void in_bulk(const float* in, float* out, int tiles) {
  __shared__ alignas(16) float tile[256];
  __shared__ alignas(8) unsigned long long full;
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&full), to = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  __syncthreads();
  for (int t = 0; t < tiles; t++) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(barrier) : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(to),
          "l"(in + t * 256), "r"(barrier)
          : "memory");
    }
    unsigned done = 0;
    while (!done)
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(barrier), "r"(t & 1)
          : "memory");
    for (int i = threadIdx.x; i < 256; i += blockDim.x) out[t * 256 + i] = tile[255 - i] * 2.0f;
    __syncthreads();
  }
}

extern "C" __global__ void elected(int* out) {
  unsigned chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  if (chosen) out[threadIdx.x / 32] = threadIdx.x % 32 + 100;
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) out[7] = cluster.num_blocks() * 10 + cluster.block_rank();
}

// Sums of neighbours, all over the grid, round after round.
extern "C" __global__ void whole_grid(int* a, int* b, int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  int i = grid.thread_rank();
  for (int r = 0; r < rounds; r++) {
    if (i < n) b[i] = a[i] + a[(i + 1) % n];
    grid.sync();
    if (i < n) a[i] = b[(i + n - 1) % n] % 1000;
    grid.sync();
  }
}
