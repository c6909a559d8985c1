// Reductions with cooperative groups: the block, tiles of a warp, those who came together; arg max; whole-warp sums.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void sum_blocks(const float* in, float* out, int n) {
  __shared__ float part[32];
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
  float sum = 0.0f;
  for (int i = block.group_index().x * block.size() + block.thread_rank(); i < n; i += gridDim.x * block.size())
    sum += in[i];
  for (int d = tile.size() / 2; d > 0; d /= 2) sum += tile.shfl_down(sum, d);
  if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = sum;
  block.sync();
  if (tile.meta_group_rank() == 0) {
    sum = tile.thread_rank() < tile.meta_group_size() ? part[tile.thread_rank()] : 0.0f;
    for (int d = tile.size() / 2; d > 0; d /= 2) sum += tile.shfl_xor(sum, d);
    if (tile.thread_rank() == 0) atomicAdd(out, sum);
  }
}

// Tiles of eight: each adds its own eight numbers, and tells whether all, any are above a limit, and which.
extern "C" __global__ void tiles_of_eight(const int* in, int* sums, int* flags, int limit) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, value = in[i], sum = value;
  for (int d = 4; d > 0; d /= 2) sum += tile.shfl_xor(sum, d);
  bool above = value > limit;
  int flag = (tile.all(above) ? 1 : 0) | (tile.any(above) ? 2 : 0) | (int)(tile.ballot(above) << 2);
  if (tile.thread_rank() == 0) {
    sums[i / 8] = sum;
    flags[i / 8] = flag;
  }
  tile.sync();
}

// Those that are odd go together: one atomic for all of them.
extern "C" __global__ void filter_odd(const int* in, int* out, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && (in[i] & 1)) {
    cg::coalesced_group active = cg::coalesced_threads();
    int at = 0;
    if (active.thread_rank() == 0) at = atomicAdd(count, (int)active.size());
    out[active.shfl(at, 0) + active.thread_rank()] = in[i];
  }
}

// Within a warp, tiles made of the threads with the same label.
extern "C" __global__ void labelled(const int* labels, int* sizes, int* ranks) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto mine = cg::labeled_partition(warp, labels[i]);
  sizes[i] = mine.size();
  ranks[i] = mine.thread_rank();
}

__device__ unsigned ticket;

// One launch: the block that comes last adds what all wrote.
extern "C" __global__ void sum_last_block(const double* in, double* parts, double* out, int n) {
  __shared__ double sums[256];
  __shared__ bool last;
  auto tree = [&](double value) {
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
      if (threadIdx.x < d) sums[threadIdx.x] += sums[threadIdx.x + d];
      __syncthreads();
    }
    return sums[0];
  };
  double value = 0.0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) value += in[i];
  value = tree(value);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = value;
    __threadfence();
    last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    value = threadIdx.x < gridDim.x ? ((volatile double*)parts)[threadIdx.x] : 0.0;
    __syncthreads();
    value = tree(value);
    if (threadIdx.x == 0) *out = value;
  }
}

// The place of the greatest: value above index in one word, by an atomic maximum of 64 bits.
extern "C" __global__ void arg_max(const float* in, unsigned long long* best, int n) {
  unsigned long long mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bits = __float_as_uint(in[i]);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    unsigned long long word = (unsigned long long)bits << 32 | (unsigned)~i;
    mine = word > mine ? word : mine;
  }
  for (int d = 16; d > 0; d /= 2) {
    unsigned long long other = __shfl_down_sync(~0u, mine, d);
    mine = other > mine ? other : mine;
  }
  if (threadIdx.x % 32 == 0) atomicMax(best, mine);
}

extern "C" __global__ void warp_reductions(const int* in, int* out) {
#if __CUDA_ARCH__ >= 800
  int i = blockIdx.x * blockDim.x + threadIdx.x, value = in[i], w = i / 32;
  int sum = __reduce_add_sync(~0u, value), low = __reduce_min_sync(~0u, value), high = __reduce_max_sync(~0u, value);
  unsigned word = value;
  unsigned all = __reduce_and_sync(~0u, word), any = __reduce_or_sync(~0u, word), odd = __reduce_xor_sync(~0u, word);
  unsigned least = __reduce_min_sync(~0u, word), most = __reduce_max_sync(~0u, word);
  if (threadIdx.x % 32 == 0) {
    int* o = out + 8 * w;
    o[0] = sum, o[1] = low, o[2] = high, o[3] = all, o[4] = any, o[5] = odd, o[6] = least, o[7] = most;
  }
#endif
}
