// Numbers: half and bfloat16 in pairs, functions of one argument, rounding by name, bits, small integers side by side.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_pairs(const __half2* a, const __half2* b, __half2* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half2 x = a[i], y = b[i];
  __half2* o = out + 12 * i;
  o[0] = __hadd2(x, y);
  o[1] = __hsub2(x, y);
  o[2] = __hmul2(x, y);
  o[3] = __hfma2(x, y, x);
  o[4] = __h2div(x, y);
  o[5] = __habs2(__hneg2(x));
  o[6] = __hmin2(x, y);
  o[7] = __hmax2(x, y);
  o[8] = __hadd2_sat(x, y);
  o[9] = h2sqrt(__habs2(x));
  o[10] = __lows2half2(x, y);
  o[11] = __hgt2(x, y);
}

extern "C" __global__ void half_functions(const __half* in, __half* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half x = in[i];
  __half* o = out + 10 * i;
  o[0] = hexp(x);
  o[1] = hlog(__habs(x));
  o[2] = hsin(x);
  o[3] = hcos(x);
  o[4] = hrsqrt(__habs(x));
  o[5] = hrcp(x);
  o[6] = hfloor(x);
  o[7] = hrint(x);
  o[8] = hceil(x);
  o[9] = htrunc(x);
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloat_pairs(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_bfloat162 x = a[i], y = b[i];
  __nv_bfloat162* o = out + 6 * i;
  o[0] = __hadd2(x, y);
  o[1] = __hmul2(x, y);
  o[2] = __hfma2(x, y, x);
  o[3] = __hmax2(x, y);
  o[4] = __hmin2(x, y);
  o[5] = __hneg2(x);
}
#endif

// Conversions of every kind, each in the rounding its name says.
extern "C" __global__ void conversions(const float* f, const double* d, const int* s, int* out_i, long long* out_l,
                                       float* out_f, unsigned short* out_h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = f[i];
  double y = d[i];
  int k = s[i];
  int* oi = out_i + 8 * i;
  oi[0] = __float2int_rn(x), oi[1] = __float2int_rz(x), oi[2] = __float2int_ru(x), oi[3] = __float2int_rd(x);
  oi[4] = (int)__float2uint_rz(x), oi[5] = __double2int_rn(y), oi[6] = (int)(signed char)k, oi[7] = (unsigned short)k;
  long long* ol = out_l + 4 * i;
  ol[0] = __float2ll_rd(x), ol[1] = __double2ll_ru(y), ol[2] = (long long)__double2ull_rz(y), ol[3] = k;
  float* of = out_f + 8 * i;
  of[0] = __int2float_rn(k), of[1] = __int2float_rz(k), of[2] = __int2float_ru(k), of[3] = __int2float_rd(k);
  of[4] = __uint2float_rn(k), of[5] = __double2float_rn(y), of[6] = __double2float_ru(y), of[7] = (float)(char)k;
  unsigned short* oh = out_h + 4 * i;
  oh[0] = __half_as_ushort(__float2half_rn(x)), oh[1] = __half_as_ushort(__float2half_rz(x));
  oh[2] = __bfloat16_as_ushort(__float2bfloat16_rn(x)), oh[3] = __half_as_ushort(__int2half_rn(k));
}

extern "C" __global__ void rounded(const float* a, const float* b, float* out, const double* c, const double* d,
                                   double* out_d, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = a[i], y = b[i], *o = out + 12 * i;
  o[0] = __fadd_rn(x, y), o[1] = __fadd_rz(x, y), o[2] = __fadd_ru(x, y), o[3] = __fadd_rd(x, y);
  o[4] = __fmul_rn(x, y), o[5] = __fmul_rz(x, y), o[6] = __fmul_ru(x, y), o[7] = __fmul_rd(x, y);
  o[8] = __fdiv_rn(x, y), o[9] = __fsqrt_rn(fabsf(x)), o[10] = __frcp_rn(y), o[11] = __saturatef(x);
  double z = c[i], w = d[i], *p = out_d + 10 * i;
  p[0] = __dadd_rn(z, w), p[1] = __dadd_rz(z, w), p[2] = __dadd_ru(z, w), p[3] = __dadd_rd(z, w);
  p[4] = __dmul_rn(z, w), p[5] = __dmul_ru(z, w), p[6] = __ddiv_rn(z, w), p[7] = __dsqrt_rn(fabs(z));
  p[8] = __fma_rn(z, w, z), p[9] = __drcp_rn(w);
}

extern "C" __global__ void functions_f32(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], p = fabsf(x) + 0.01f, u = x / (1.0f + fabsf(x)), *o = out + 28 * i;
  o[0] = sinf(x), o[1] = cosf(x), o[2] = tanf(x), o[3] = asinf(u), o[4] = acosf(u), o[5] = atanf(x);
  o[6] = sinhf(u), o[7] = coshf(u), o[8] = tanhf(x), o[9] = expf(u), o[10] = exp2f(x), o[11] = expm1f(u);
  o[12] = logf(p), o[13] = log2f(p), o[14] = log10f(p), o[15] = log1pf(p), o[16] = powf(p, u), o[17] = cbrtf(x);
  o[18] = erff(x), o[19] = erfcf(u), o[20] = lgammaf(p), o[21] = tgammaf(p), o[22] = fmodf(x, 0.7f);
  o[23] = hypotf(x, p), o[24] = atan2f(x, u), o[25] = rintf(x), o[26] = floorf(x), o[27] = copysignf(p, x);
}

extern "C" __global__ void functions_f64(const double* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = in[i], p = fabs(x) + 0.01, u = x / (1.0 + fabs(x)), *o = out + 16 * i;
  o[0] = sin(x), o[1] = cos(x), o[2] = tan(x), o[3] = asin(u), o[4] = atan(x), o[5] = tanh(x), o[6] = exp(u);
  o[7] = log(p), o[8] = pow(p, u), o[9] = cbrt(x), o[10] = erf(x), o[11] = lgamma(p), o[12] = fmod(x, 0.7);
  o[13] = rsqrt(p), o[14] = atan2(x, u), o[15] = round(x);
}

extern "C" __global__ void bits(const unsigned* a, const unsigned* b, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned x = a[i], y = b[i], *o = out + 24 * i;
  o[0] = __popc(x), o[1] = __clz(x), o[2] = __brev(x), o[3] = __ffs(x), o[4] = __byte_perm(x, y, 0x5214);
  o[5] = __funnelshift_l(x, y, y), o[6] = __funnelshift_r(x, y, y), o[7] = __funnelshift_lc(x, y, y & 63);
  o[8] = __umulhi(x, y), o[9] = __mulhi((int)x, (int)y), o[10] = __mul24((int)x, (int)y), o[11] = __usad(x, y, 5u);
  o[12] = __sad((int)x, (int)y, 9u), o[13] = __dp4a((int)x, (int)y, 3), o[14] = __uhadd(x, y), o[15] = __hadd((int)x, (int)y);
  o[16] = __vadd4(x, y), o[17] = __vabsdiffu4(x, y), o[18] = __vmaxs2(x, y), o[19] = __vcmpgtu4(x, y);
  unsigned extracted, inserted, logic;
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(extracted) : "r"(x), "r"(y & 31), "r"(7));
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(inserted) : "r"(x), "r"(y), "r"(x & 31), "r"(9));
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(logic) : "r"(x), "r"(y), "r"(~x >> 3));
  o[20] = extracted, o[21] = inserted, o[22] = logic, o[23] = y ? (x % y) ^ (unsigned)((int)x / (int)(y | 1)) : 0;
}

extern "C" __global__ void wide(const unsigned long long* a, const unsigned long long* b, unsigned long long* out,
                                int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = a[i], y = b[i], *o = out + 12 * i;
  o[0] = __umul64hi(x, y), o[1] = __mul64hi((long long)x, (long long)y), o[2] = __popcll(x), o[3] = __clzll(x);
  o[4] = __brevll(x), o[5] = __ffsll(x), o[6] = x / (y | 1), o[7] = x % (y | 1);
  o[8] = (unsigned long long)((long long)x / (long long)(y | 1)), o[9] = x >> (y & 63);
  unsigned __int128 w = (unsigned __int128)x * y + x;
  w = (w << 7) - y;
  o[10] = (unsigned long long)w, o[11] = (unsigned long long)(w >> 64);
}
