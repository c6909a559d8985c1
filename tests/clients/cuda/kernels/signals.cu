// Signals and pictures: filters with coefficients in constant memory, recursion as a scan, sparse convolution, bits.
#define TAPS 33

__constant__ float taps[TAPS];

extern "C" __global__ void fir(const float* in, float* out, int n) {
  extern __shared__ float near[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = threadIdx.x; k < blockDim.x + TAPS - 1; k += blockDim.x) {
    int at = (int)(blockIdx.x * blockDim.x) + k - TAPS / 2;
    near[k] = at >= 0 && at < n ? in[at] : 0.0f;
  }
  __syncthreads();
  if (i >= n) return;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < TAPS; k++) sum = fmaf(near[threadIdx.x + k], taps[k], sum);
  out[i] = sum;
}

// y[i] = a[i] y[i - 1] + x[i], as a scan of pairs; a block a signal.
extern "C" __global__ void recursion(const float* a, const float* x, float* y, int n) {
  __shared__ float factors[32], sums[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float carried = 0.0f;
  for (int base = 0; base < n; base += blockDim.x) {
    int i = base + threadIdx.x, at = blockIdx.x * n + i;
    float f = i < n ? a[at] : 1.0f, s = i < n ? x[at] : 0.0f;
    for (int d = 1; d < 32; d *= 2) {
      float before = __shfl_up_sync(~0u, s, d), factor = __shfl_up_sync(~0u, f, d);
      if (lane >= d) s = fmaf(f, before, s), f *= factor;
    }
    if (lane == 31) factors[warp] = f, sums[warp] = s;
    __syncthreads();
    float start = carried;
    for (int w = 0; w < warp; w++) start = fmaf(factors[w], start, sums[w]);
    if (i < n) y[at] = fmaf(f, start, s);
    float next = carried;
    for (int w = 0; w < blockDim.x / 32; w++) next = fmaf(factors[w], next, sums[w]);
    __syncthreads();
    carried = next;
  }
}

// Convolution of points that are there alone: neighbours by a table of rows for each of the 9 places.
extern "C" __global__ void sparse_convolution(const float* in, const int* neighbours, const float* weights, float* out,
                                              int points, int from, int to) {
  int point = blockIdx.x * blockDim.y + threadIdx.y, channel = threadIdx.x;
  if (point >= points || channel >= to) return;
  float sum = 0.0f;
  for (int place = 0; place < 9; place++) {
    int other = neighbours[place * points + point];
    if (other < 0) continue;
    for (int c = 0; c < from; c++) sum += __ldg(in + other * from + c) * weights[(place * from + c) * to + channel];
  }
  out[point * to + channel] = sum;
}

// Life, 32 cells a word, with a halo in shared memory; sums of eight neighbours bit by bit. Width: words * 32, round.
extern "C" __global__ void life_bits(const unsigned* in, unsigned* out, int words, int height) {
  __shared__ unsigned cells[10][34];
  int x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
  for (int i = threadIdx.y * 32 + threadIdx.x; i < 10 * 34; i += 256) {
    int x = (x0 + i % 34 - 1 + words) % words, y = (y0 + i / 34 - 1 + height) % height;
    cells[i / 34][i % 34] = in[y * words + x];
  }
  __syncthreads();
  unsigned ones = 0, twos = 0, fours = 0, own = cells[threadIdx.y + 1][threadIdx.x + 1];
  for (int dy = 0; dy < 3; dy++) {
    unsigned left = cells[threadIdx.y + dy][threadIdx.x], here = cells[threadIdx.y + dy][threadIdx.x + 1];
    unsigned right = cells[threadIdx.y + dy][threadIdx.x + 2];
    unsigned rows[3] = {__funnelshift_l(left, here, 1), here, __funnelshift_r(here, right, 1)};
    for (int dx = 0; dx < 3; dx++) {
      if (dx == 1 && dy == 1) continue;
      unsigned carry = ones & rows[dx];
      ones ^= rows[dx];
      unsigned high = twos & carry;
      twos ^= carry;
      fours |= high;
    }
  }
  int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
  if (x < words && y < height) out[y * words + x] = twos & ~fours & (ones | own);
}

// The median of 3 x 3, by exchanges.
extern "C" __global__ void median(const unsigned char* in, unsigned char* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int v[9];
  for (int i = 0; i < 9; i++) {
    int px = min(max(x + i % 3 - 1, 0), width - 1), py = min(max(y + i / 3 - 1, 0), height - 1);
    v[i] = in[py * width + px];
  }
  for (int i = 0; i < 5; i++)
    for (int j = i + 1; j < 9; j++) {
      int low = min(v[i], v[j]);
      v[j] = max(v[i], v[j]);
      v[i] = low;
    }
  out[y * width + x] = v[4];
}
