// Numbers of 8 and 4 bits: products by dp4a, scales by block, 8-bit floats, and what was packed unpacked by lop3.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define TILE 16

// c = (a scaled by row) * (b scaled by column): a m x k by rows, b n x k by rows, k a multiple of 4.
extern "C" __global__ void product_dp4a(const char4* a, const char4* b, const float* rows, const float* columns, float* c,
                                        int m, int n, int k4) {
  __shared__ int left[TILE][TILE], right[TILE][TILE + 1];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  int sum = 0;
  for (int base = 0; base < k4; base += TILE) {
    char4 none = make_char4(0, 0, 0, 0);
    char4 u = row < m && base + x < k4 ? a[row * k4 + base + x] : none;
    int other = blockIdx.x * TILE + y;
    char4 w = other < n && base + x < k4 ? b[other * k4 + base + x] : none;
    left[y][x] = *(int*)&u;
    right[y][x] = *(int*)&w;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) sum = __dp4a(left[y][i], right[x][i], sum);
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum * rows[row] * columns[column];
}

// A block of 128 numbers has the scale that brings its largest to the format's largest; the bits of two formats.
extern "C" __global__ void to_fp8(const float* in, __nv_fp8_storage_t* e4m3, __nv_fp8_storage_t* e5m2, float* scales,
                                  int n) {
  __shared__ float tops[4];
  int i = blockIdx.x * 128 + threadIdx.x;
  float x = i < n ? in[i] : 0.0f, top = fabsf(x);
  for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
  float scale = top > 0.0f ? __fdiv_rn(top, 448.0f) : 1.0f;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  if (i >= n) return;
  e4m3[i] = __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3);
  e5m2[i] = __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E5M2);
}

extern "C" __global__ void from_fp8(const __nv_fp8x2_storage_t* in, const float* scales, float* out, int pairs) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(in[i], __NV_E4M3)));
  float scale = scales[i / 64];
  ((float2*)out)[i] = make_float2(two.x * scale, two.y * scale);
}

// Eight numbers of 4 bits in a word become halves: put into the mantissa of 1024, and 1024 + 8 taken away.
extern "C" __global__ void from_int4(const unsigned* in, const __half* scales, __half2* out, int words) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= words) return;
  unsigned word = in[i];
  __half2 scale = __half2half2(scales[i / 4]);
#pragma unroll
  for (int n = 0; n < 4; n++) {
    unsigned bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(bits) : "r"(word >> (4 * n)), "n"(0x000F000F), "n"(0x64006400));
    __half2 two = __hsub2(*(__half2*)&bits, __float2half2_rn(1032.0f));
    out[i * 4 + n] = __hmul2(two, scale);
  }
}

// Bits that are signs: a product of vectors of 1 and -1 is a count.
extern "C" __global__ void product_of_signs(const unsigned* a, const unsigned* b, int* out, int words, int columns) {
  int row = blockIdx.x, column = threadIdx.x;
  int sum = 0;
  for (int i = 0; i < words; i++) sum += __popc(a[row * words + i] ^ b[column * words + i]);
  out[row * columns + column] = 32 * words - 2 * sum;
}
