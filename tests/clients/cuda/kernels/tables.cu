// Tables and groups: hashing with linear probing, counting with one atomic a warp, centres of clusters, the largest k.
#include <cooperative_groups.h>
#include <cuda/atomic>

namespace cg = cooperative_groups;

#define EMPTY 0xFFFFFFFFFFFFFFFFull

__device__ unsigned mix(unsigned x) {
  x ^= x >> 16, x *= 0x85EBCA6Bu, x ^= x >> 13, x *= 0xC2B2AE35u;
  return x ^ x >> 16;
}

// Key and value in one word: sums values of equal keys.
extern "C" __global__ void table_add(const unsigned* keys, const unsigned* values, unsigned long long* table, int slots,
                                     int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (unsigned at = mix(keys[i]) % slots;; at = (at + 1) % slots) {
    unsigned long long old = table[at];
    while (old == EMPTY || (unsigned)(old >> 32) == keys[i]) {
      unsigned long long sum = old == EMPTY ? values[i] : (unsigned)old + values[i];
      unsigned long long seen = atomicCAS(&table[at], old, (unsigned long long)keys[i] << 32 | sum);
      if (seen == old) return;
      old = seen;
    }
  }
}

// A group of eight lanes looks at eight slots at a time.
extern "C" __global__ void table_find(const unsigned* keys, const unsigned long long* table, unsigned* out, int slots,
                                      int n) {
  auto group = cg::tiled_partition<8>(cg::this_thread_block());
  int i = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
  if (i >= n) return;
  unsigned start = mix(keys[i]) % slots;
  for (int probe = 0; probe < slots; probe += 8) {
    unsigned long long word = table[(start + probe + group.thread_rank()) % slots];
    unsigned here = group.ballot((unsigned)(word >> 32) == keys[i] && word != EMPTY);
    unsigned none = group.ballot(word == EMPTY);
    if (here) {
      unsigned value = group.shfl((unsigned)word, __ffs(here) - 1);
      if (group.thread_rank() == 0) out[i] = value;
      return;
    }
    if (none) break;
  }
  if (group.thread_rank() == 0) out[i] = 0xFFFFFFFFu;
}

// The numbers that pass, in any order: one atomic for all lanes that are there.
extern "C" __global__ void append(const int* in, int* out, int* count, int n, int below) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (in[i] >= below) continue;
    auto active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) {
      cuda::atomic_ref<int, cuda::thread_scope_device> total(*count);
      first = total.fetch_add(active.size(), cuda::std::memory_order_relaxed);
    }
    out[active.shfl(first, 0) + active.thread_rank()] = in[i];
  }
}

#define CENTRES 5

extern "C" __global__ void k_means(const float3* points, const float3* centres, int* labels, float* sums, int* counts,
                                   int n) {
  __shared__ float own_sums[CENTRES][3];
  __shared__ int own_counts[CENTRES];
  for (int i = threadIdx.x; i < CENTRES * 3; i += blockDim.x) own_sums[i / 3][i % 3] = 0.0f;
  if (threadIdx.x < CENTRES) own_counts[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float3 p = points[i];
    int best = 0;
    float least = 1e30f;
    for (int c = 0; c < CENTRES; c++) {
      float x = p.x - centres[c].x, y = p.y - centres[c].y, z = p.z - centres[c].z, d = x * x + y * y + z * z;
      if (d < least) least = d, best = c;
    }
    labels[i] = best;
    atomicAdd(&own_sums[best][0], p.x), atomicAdd(&own_sums[best][1], p.y), atomicAdd(&own_sums[best][2], p.z);
    atomicAdd(&own_counts[best], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < CENTRES * 3; e += blockDim.x) atomicAdd(&sums[e], own_sums[e / 3][e % 3]);
  if (threadIdx.x < CENTRES) atomicAdd(&counts[threadIdx.x], own_counts[threadIdx.x]);
}

// The 32 largest of each row and where they are: a bitonic sort of lanes, merged with each further 32.
extern "C" __global__ void largest(const float* in, float* values, int* indices, int columns) {
  int lane = threadIdx.x, row = blockIdx.x;
  auto exchange = [&](float& v, int& i, int with, bool up) {
    float other = __shfl_xor_sync(~0u, v, with);
    int place = __shfl_xor_sync(~0u, i, with);
    bool low = (lane & with) == 0, ahead = other > v || (other == v && place < i);
    if (ahead == (low == up)) v = other, i = place;
  };
  auto sort = [&](float& v, int& i, bool up) {
    for (int size = 2; size <= 32; size *= 2)
      for (int with = size / 2; with; with /= 2) exchange(v, i, with, size == 32 ? up : ((lane & size) == 0) == up);
  };
  float best = -1e30f;
  int where = 1 << 30;
  for (int base = 0; base < columns; base += 32) {
    bool real = base + lane < columns;
    float v = real ? in[row * columns + base + lane] : -1e30f;
    int i = real ? base + lane : 1 << 30;
    sort(v, i, false);  // the least first, against the largest first
    if (v > best || (v == best && i < where)) best = v, where = i;
    for (int with = 16; with; with /= 2) exchange(best, where, with, true);
  }
  values[row * 32 + lane] = best;
  indices[row * 32 + lane] = where;
}
