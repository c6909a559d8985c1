// Prefix sums: up and down a tree in shared memory, by shuffles, and over a whole array in one pass.

// Exclusive, of 2 * blockDim.x numbers a block; the block's total goes to totals[blockIdx.x] where there is one.
extern "C" __global__ void scan_tree(const int* in, int* out, int* totals, int n) {
  extern __shared__ int t[];
  int m = 2 * blockDim.x, base = blockIdx.x * m, me = threadIdx.x;
  auto padded = [](int i) { return i + (i >> 5); };
  t[padded(me)] = base + me < n ? in[base + me] : 0;
  t[padded(me + blockDim.x)] = base + me + blockDim.x < n ? in[base + me + blockDim.x] : 0;
  int stride = 1;
  for (int d = m >> 1; d > 0; d >>= 1, stride *= 2) {
    __syncthreads();
    if (me < d) t[padded(stride * (2 * me + 2) - 1)] += t[padded(stride * (2 * me + 1) - 1)];
  }
  if (me == 0) {
    if (totals) totals[blockIdx.x] = t[padded(m - 1)];
    t[padded(m - 1)] = 0;
  }
  for (int d = 1; d < m; d *= 2) {
    stride >>= 1;
    __syncthreads();
    if (me < d) {
      int left = padded(stride * (2 * me + 1) - 1), right = padded(stride * (2 * me + 2) - 1), was = t[left];
      t[left] = t[right];
      t[right] += was;
    }
  }
  __syncthreads();
  if (base + me < n) out[base + me] = t[padded(me)];
  if (base + me + blockDim.x < n) out[base + me + blockDim.x] = t[padded(me + blockDim.x)];
}

extern "C" __global__ void add_offsets(int* out, const int* offsets, int n) {
  int i = blockIdx.x * 2 * blockDim.x + threadIdx.x, by = offsets[blockIdx.x];
  if (i < n) out[i] += by;
  if (i + blockDim.x < n) out[i + blockDim.x] += by;
}

template <typename T>
__device__ T scan_of_block(T value) {  // inclusive
  __shared__ T sums[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int d = 1; d < 32; d *= 2) {
    T from = __shfl_up_sync(0xffffffffu, value, d);
    if (lane >= d) value += from;
  }
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  if (warp == 0) {
    T sum = lane < (int)(blockDim.x >> 5) ? sums[lane] : T(0);
    for (int d = 1; d < 32; d *= 2) {
      T from = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += from;
    }
    sums[lane] = sum;
  }
  __syncthreads();
  return warp ? value + sums[warp - 1] : value;
}

extern "C" __global__ void scan_shuffle_i32(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int value = scan_of_block(i < n ? in[i] : 0);
  if (i < n) out[i] = value;
}

extern "C" __global__ void scan_shuffle_f64(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double value = scan_of_block(i < n ? in[i] : 0.0);
  if (i < n) out[i] = value;
}

// One pass: a block takes the next ticket, publishes its total, and looks back over the blocks before it. A word holds
// a state (1: the block's own sum, 2: the sum up to and with it) above 32 bits of sum.
extern "C" __global__ void scan_look_back(const unsigned* in, unsigned* out, unsigned long long* states,
                                          unsigned* ticket, int n) {
  __shared__ unsigned block, before;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1u);
  __syncthreads();
  int i = block * blockDim.x + threadIdx.x;
  unsigned value = scan_of_block(i < n ? in[i] : 0u);
  if (threadIdx.x == blockDim.x - 1) {
    volatile unsigned long long* seen = states;
    unsigned sum = 0;
    if (block > 0) {
      atomicExch(&states[block], (1ull << 32) | value);
      for (int b = block - 1; b >= 0; b--) {
        unsigned long long word;
        do word = seen[b];
        while (word == 0);
        sum += (unsigned)word;
        if (word >> 32 == 2) break;
      }
    }
    __threadfence();
    atomicExch(&states[block], (2ull << 32) | (value + sum));
    before = sum;
  }
  __syncthreads();
  if (i < n) out[i] = value + before;
}
