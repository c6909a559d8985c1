// Attention forward in tiles, with a running maximum and sum for each row, so that no row of scores is ever kept.
#include <cuda_fp16.h>
#include <math_constants.h>

#define HEAD 32
#define ROWS 32
#define COLUMNS 32

// One block: ROWS queries of one head; one thread a query.
extern "C" __global__ void attention_f32(const float* q, const float* k, const float* v, float* out, int length,
                                         float scale, int causal) {
  __shared__ float keys[COLUMNS][HEAD], values[COLUMNS][HEAD];
  size_t head = (size_t)blockIdx.y * length * HEAD;
  int row = blockIdx.x * ROWS + threadIdx.x;
  float query[HEAD], sum[HEAD];
  for (int d = 0; d < HEAD; d++) {
    query[d] = row < length ? q[head + (size_t)row * HEAD + d] * scale : 0.0f;
    sum[d] = 0.0f;
  }
  float top = -CUDART_INF_F, weight = 0.0f;
  int last = causal ? min(length, (int)(blockIdx.x + 1) * ROWS) : length;
  for (int base = 0; base < last; base += COLUMNS) {
    for (int j = 0; j < COLUMNS; j++) {
      bool real = base + j < length;
      keys[j][threadIdx.x] = real ? k[head + (size_t)(base + j) * HEAD + threadIdx.x] : 0.0f;
      values[j][threadIdx.x] = real ? v[head + (size_t)(base + j) * HEAD + threadIdx.x] : 0.0f;
    }
    __syncthreads();
    float scores[COLUMNS], most = top;
    for (int j = 0; j < COLUMNS; j++) {
      float s = 0.0f;
      for (int d = 0; d < HEAD; d++) s += query[d] * keys[j][d];
      bool seen = base + j < length && !(causal && base + j > row);
      scores[j] = seen ? s : -CUDART_INF_F;
      most = fmaxf(most, scores[j]);
    }
    float keep = expf(top - most);
    if (most == -CUDART_INF_F) keep = 1.0f;
    weight *= keep;
    for (int d = 0; d < HEAD; d++) sum[d] *= keep;
    for (int j = 0; j < COLUMNS; j++) {
      float p = most == -CUDART_INF_F ? 0.0f : expf(scores[j] - most);
      weight += p;
      for (int d = 0; d < HEAD; d++) sum[d] += p * values[j][d];
    }
    top = most;
    __syncthreads();
  }
  if (row < length)
    for (int d = 0; d < HEAD; d++) out[head + (size_t)row * HEAD + d] = sum[d] / weight;
}

// A warp a query, two columns of the head a lane; scores by shuffles, sums in single precision.
extern "C" __global__ void attention_f16(const __half2* q, const __half2* k, const __half2* v, __half2* out, int length,
                                         float scale) {
  __shared__ __half2 keys[COLUMNS][HEAD / 2], values[COLUMNS][HEAD / 2];
  int lane = threadIdx.x & 15, row = blockIdx.x * (blockDim.x / 16) + threadIdx.x / 16;
  size_t head = (size_t)blockIdx.y * length * (HEAD / 2);
  bool real = row < length;
  __half2 query = real ? q[head + row * (HEAD / 2) + lane] : __float2half2_rn(0.0f);
  query = __hmul2(query, __float2half2_rn(scale));
  float2 sum = make_float2(0.0f, 0.0f);
  float top = -CUDART_INF_F, weight = 0.0f;
  for (int base = 0; base < length; base += COLUMNS) {
    for (int i = threadIdx.x; i < COLUMNS * (HEAD / 2); i += blockDim.x) {
      int j = i / (HEAD / 2), d = i % (HEAD / 2);
      bool there = base + j < length;
      keys[j][d] = there ? k[head + (base + j) * (HEAD / 2) + d] : __float2half2_rn(0.0f);
      values[j][d] = there ? v[head + (base + j) * (HEAD / 2) + d] : __float2half2_rn(0.0f);
    }
    __syncthreads();
    for (int j = 0; j < COLUMNS && base + j < length; j++) {
      float2 two = __half22float2(__hmul2(query, keys[j][lane]));
      float s = two.x + two.y;
      for (int d = 8; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d, 16);
      float most = fmaxf(top, s), keep = __expf(top - most), p = __expf(s - most);
      float2 value = __half22float2(values[j][lane]);
      weight = weight * keep + p;
      sum.x = sum.x * keep + p * value.x;
      sum.y = sum.y * keep + p * value.y;
      top = most;
    }
    __syncthreads();
  }
  if (real) out[head + row * (HEAD / 2) + lane] = __floats2half2_rn(sum.x / weight, sum.y / weight);
}
