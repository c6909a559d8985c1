// Products by mma instructions written by hand, with ldmatrix.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// 16 x 8, k in steps of 8, as compute capability 7.5 has it. a is 16 x k by rows, b k x 8 by columns.
extern "C" __global__ void mma_k8(const __half* a, const __half* b, float* c, int k) {
  int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
  float d0 = 0.0f, d1 = 0.0f, d2 = 0.0f, d3 = 0.0f;
  for (int i = 0; i < k; i += 8) {
    unsigned a0 = *(const unsigned*)(a + group * k + i + in_group * 2);
    unsigned a1 = *(const unsigned*)(a + (group + 8) * k + i + in_group * 2);
    unsigned b0 = *(const unsigned*)(b + group * k + i + in_group * 2);
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(b0));
  }
  c[group * 8 + in_group * 2] = d0;
  c[group * 8 + in_group * 2 + 1] = d1;
  c[(group + 8) * 8 + in_group * 2] = d2;
  c[(group + 8) * 8 + in_group * 2 + 1] = d3;
}

#if __CUDA_ARCH__ >= 800
// 16 x 8, k in steps of 16, the operands through shared memory and ldmatrix. a 16 x k by rows, b k x 8 by rows.
extern "C" __global__ void mma_k16(const __half* a, const __half* b, float* c, int k) {
  __shared__ __align__(16) __half left[16][16], right[16][8];
  int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
  float d[4] = {};
  for (int i = 0; i < k; i += 16) {
    for (int e = lane; e < 256; e += 32) left[e / 16][e % 16] = a[e / 16 * k + i + e % 16];
    for (int e = lane; e < 128; e += 32) right[e / 8][e % 8] = b[(i + e / 8) * 8 + e % 8];
    __syncwarp();
    unsigned x[4], y[2];
    unsigned at = (unsigned)__cvta_generic_to_shared(&left[lane % 16][lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at));
    at = (unsigned)__cvta_generic_to_shared(&right[lane % 16][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(at));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncwarp();
  }
  *(float2*)(c + group * 8 + in_group * 2) = make_float2(d[0], d[1]);
  *(float2*)(c + (group + 8) * 8 + in_group * 2) = make_float2(d[2], d[3]);
}

extern "C" __global__ void mma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
  const unsigned *rows = (const unsigned*)a, *columns = (const unsigned*)b;  // 16 x 16 by rows, 16 x 8 by columns
  unsigned a0 = rows[group * 8 + in_group], a1 = rows[(group + 8) * 8 + in_group];
  unsigned a2 = rows[group * 8 + in_group + 4], a3 = rows[(group + 8) * 8 + in_group + 4];
  unsigned b0 = columns[group * 8 + in_group], b1 = columns[group * 8 + in_group + 4];
  float d0, d1, d2, d3, zero = 0.0f;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(zero));
  *(float2*)(c + group * 8 + in_group * 2) = make_float2(d0, d1);
  *(float2*)(c + (group + 8) * 8 + in_group * 2) = make_float2(d2, d3);
}

extern "C" __global__ void mma_tf32(const float* a, const float* b, float* c) {
  int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;  // a 16 x 8 by rows, b 8 x 8 by columns
  auto rounded = [](float x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
  };
  unsigned a0 = rounded(a[group * 8 + in_group]), a1 = rounded(a[(group + 8) * 8 + in_group]);
  unsigned a2 = rounded(a[group * 8 + in_group + 4]), a3 = rounded(a[(group + 8) * 8 + in_group + 4]);
  unsigned b0 = rounded(b[group * 8 + in_group]), b1 = rounded(b[group * 8 + in_group + 4]);
  float d0 = 1.0f, d1 = 1.0f, d2 = 1.0f, d3 = 1.0f;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  *(float2*)(c + group * 8 + in_group * 2) = make_float2(d0, d1);
  *(float2*)(c + (group + 8) * 8 + in_group * 2) = make_float2(d2, d3);
}

extern "C" __global__ void mma_int8(const signed char* a, const signed char* b, int* c) {
  int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;  // a 16 x 32 by rows, b 32 x 8 by columns
  const unsigned *rows = (const unsigned*)a, *columns = (const unsigned*)b;
  unsigned a0 = rows[group * 8 + in_group], a1 = rows[(group + 8) * 8 + in_group];
  unsigned a2 = rows[group * 8 + in_group + 4], a3 = rows[(group + 8) * 8 + in_group + 4];
  unsigned b0 = columns[group * 8 + in_group], b1 = columns[group * 8 + in_group + 4];
  int d0, d1, d2, d3;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
  *(int2*)(c + group * 8 + in_group * 2) = make_int2(d0, d1);
  *(int2*)(c + (group + 8) * 8 + in_group * 2) = make_int2(d2, d3);
}

extern "C" __global__ void mma_f64(const double* a, const double* b, double* c) {
  int lane = threadIdx.x;  // a 8 x 4 by rows, b 4 x 8 by columns
  double d0 = 0.5, d1 = 0.25;
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
      : "+d"(d0), "+d"(d1)
      : "d"(a[lane / 4 * 4 + lane % 4]), "d"(b[lane / 4 * 4 + lane % 4]));
  *(double2*)(c + lane / 4 * 8 + lane % 4 * 2) = make_double2(d0, d1);
}
#endif
