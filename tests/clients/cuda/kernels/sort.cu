// Sorting: radix sort in passes of four bits, bitonic networks in shared and in global memory, odd-even by warps.

#define DIGITS 16

extern "C" __global__ void radix_count(const unsigned* keys, unsigned* counts, int n, int shift, int blocks) {
  __shared__ unsigned mine[DIGITS];
  if (threadIdx.x < DIGITS) mine[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&mine[(keys[i] >> shift) & (DIGITS - 1)], 1u);
  __syncthreads();
  if (threadIdx.x < DIGITS) counts[threadIdx.x * blocks + blockIdx.x] = mine[threadIdx.x];
}

// One block; exclusive, in place, over any number.
extern "C" __global__ void radix_scan(unsigned* counts, int n) {
  __shared__ unsigned sums[256];
  __shared__ unsigned carry;
  if (threadIdx.x == 0) carry = 0;
  for (int base = 0; base < n; base += blockDim.x) {
    int i = base + threadIdx.x;
    unsigned value = i < n ? counts[i] : 0;
    sums[threadIdx.x] = value;
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
      unsigned add = threadIdx.x >= d ? sums[threadIdx.x - d] : 0;
      __syncthreads();
      sums[threadIdx.x] += add;
      __syncthreads();
    }
    if (i < n) counts[i] = carry + sums[threadIdx.x] - value;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) carry += sums[threadIdx.x];
    __syncthreads();
  }
}

// Stable: a key's rank in its block is the number of threads before it with the same digit, by ballots.
extern "C" __global__ void radix_scatter(const unsigned* keys, const unsigned* values, const unsigned* offsets,
                                         unsigned* keys_out, unsigned* values_out, int n, int shift, int blocks) {
  __shared__ unsigned of_warp[32][DIGITS];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  bool real = i < n;
  unsigned key = real ? keys[i] : 0, digit = real ? (key >> shift) & (DIGITS - 1) : DIGITS;
  unsigned same = __ballot_sync(~0u, real);
  if (!real) same = 0;
#pragma unroll
  for (int bit = 0; bit < 4; bit++) {
    unsigned set = __ballot_sync(~0u, (digit >> bit) & 1);
    same &= (digit >> bit) & 1 ? set : ~set;
  }
  if (lane < DIGITS) of_warp[warp][lane] = 0;
  __syncwarp();
  unsigned rank = __popc(same & ((1u << lane) - 1));
  if (real && rank == 0) of_warp[warp][digit] = __popc(same);
  __syncthreads();
  if (!real) return;
  unsigned before = 0;
  for (int w = 0; w < warp; w++) before += of_warp[w][digit];
  unsigned to = offsets[digit * blocks + blockIdx.x] + before + rank;
  keys_out[to] = key;
  values_out[to] = values[i];
}

template <typename T>
__device__ void order(T& a, T& b, bool up) {
  if ((a > b) == up) {
    T t = a;
    a = b;
    b = t;
  }
}

// A block sorts 2 * blockDim.x numbers, a power of two; odd blocks downwards where `alternate`.
extern "C" __global__ void bitonic_shared(float* data, int alternate) {
  extern __shared__ float s[];
  int m = 2 * blockDim.x, base = blockIdx.x * m;
  s[threadIdx.x] = data[base + threadIdx.x];
  s[threadIdx.x + blockDim.x] = data[base + threadIdx.x + blockDim.x];
  for (int size = 2; size <= m; size *= 2) {
    bool up = size == m ? !(alternate && (blockIdx.x & 1)) : (threadIdx.x & (size / 2)) == 0;
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      int at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      order(s[at], s[at + stride], up);
    }
  }
  __syncthreads();
  data[base + threadIdx.x] = s[threadIdx.x];
  data[base + threadIdx.x + blockDim.x] = s[threadIdx.x + blockDim.x];
}

extern "C" __global__ void bitonic_step(unsigned long long* data, int n, int size, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ stride;
  if (i >= n || other <= i) return;
  bool up = (i & size) == 0;
  unsigned long long a = data[i], b = data[other];
  if ((a > b) == up) {
    data[i] = b;
    data[other] = a;
  }
}

// 32 numbers a warp, in registers alone.
extern "C" __global__ void bitonic_warp(int* data) {
  int lane = threadIdx.x & 31, i = blockIdx.x * blockDim.x + threadIdx.x, value = data[i];
  for (int size = 2; size <= 32; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      int other = __shfl_xor_sync(~0u, value, stride);
      bool up = (lane & size) == 0, low = (lane & stride) == 0;
      value = up == low ? min(value, other) : max(value, other);
    }
  data[i] = value;
}
