// Simulation: gravity between bodies by tiles, random numbers by a counter (Philox 4x32, ten rounds), walks, life.

extern "C" __global__ void gravity(const float4* bodies, float4* forces, int n, float softening) {
  extern __shared__ float4 tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 me = i < n ? bodies[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float3 a = make_float3(0.0f, 0.0f, 0.0f);
  for (int base = 0; base < n; base += blockDim.x) {
    tile[threadIdx.x] = base + threadIdx.x < n ? bodies[base + threadIdx.x] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < blockDim.x; j++) {
      float4 other = tile[j];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
      float s = other.w * inverse * inverse * inverse;
      a.x += dx * s;
      a.y += dy * s;
      a.z += dz * s;
    }
    __syncthreads();
  }
  if (i < n) forces[i] = make_float4(a.x, a.y, a.z, 0.0f);
}

__device__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

extern "C" __global__ void random_words(uint4* out, int n, unsigned long long seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = philox(make_uint4(i, 0, 0, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
}

// How many of rounds * 2 points a thread fall into the quarter circle.
extern "C" __global__ void quarter_circle(unsigned long long* hits, int rounds, unsigned long long seed) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mine = 0;
  for (int round = 0; round < rounds; round++) {
    uint4 r = philox(make_uint4(i, round, 1, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
    float x = r.x * 0x1p-32f, y = r.y * 0x1p-32f, z = r.z * 0x1p-32f, w = r.w * 0x1p-32f;
    mine += __fmaf_rn(x, x, __fmul_rn(y, y)) < 1.0f;
    mine += __fmaf_rn(z, z, __fmul_rn(w, w)) < 1.0f;
  }
  for (int d = 16; d > 0; d /= 2) mine += __shfl_down_sync(~0u, mine, d);
  if ((threadIdx.x & 31) == 0) atomicAdd(hits, (unsigned long long)mine);
}

// Pairs of normal numbers by Box and Muller.
extern "C" __global__ void normal_numbers(float2* out, int n, unsigned long long seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint4 r = philox(make_uint4(i, 7, 0, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
  float u = (r.x + 0.5f) * 0x1p-32f, radius = sqrtf(-2.0f * logf(u)), sine, cosine;
  sincosf(6.283185307f * (r.y * 0x1p-32f), &sine, &cosine);
  out[i] = make_float2(radius * cosine, radius * sine);
}

extern "C" __global__ void life(const unsigned char* in, unsigned char* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int neighbours = 0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++)
      if (dx || dy) neighbours += in[(y + dy + height) % height * width + (x + dx + width) % width];
  out[y * width + x] = neighbours == 3 || (neighbours == 2 && in[y * width + x]);
}

extern "C" __global__ void mandelbrot(int* out, int width, int height, double left, double top, double step, int limit) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  double cr = __dadd_rn(left, __dmul_rn(x, step)), ci = __dadd_rn(top, __dmul_rn(y, step)), zr = 0.0, zi = 0.0;
  int i = 0;
  while (i < limit) {
    double rr = __dmul_rn(zr, zr), ii = __dmul_rn(zi, zi);
    if (__dadd_rn(rr, ii) > 4.0) break;
    zi = __dadd_rn(__dmul_rn(2.0, __dmul_rn(zr, zi)), ci);
    zr = __dadd_rn(__dsub_rn(rr, ii), cr);
    i++;
  }
  out[y * width + x] = i;
}
