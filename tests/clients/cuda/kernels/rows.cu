// What networks do to rows: softmax in one pass, layer norm by Welford's sums, root mean square norm, cross entropy.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

struct Online {
  float top, sum;
};

__device__ Online join(Online a, Online b) {
  float top = fmaxf(a.top, b.top);
  if (top == -CUDART_INF_F) return {top, 0.0f};
  return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

__device__ Online join_block(Online mine) {
  __shared__ Online of_warp[32];
  for (int d = 16; d > 0; d /= 2)
    mine = join(mine, {__shfl_xor_sync(~0u, mine.top, d), __shfl_xor_sync(~0u, mine.sum, d)});
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = mine;
  __syncthreads();
  mine = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : Online{-CUDART_INF_F, 0.0f};
  if (threadIdx.x < 32) {
    for (int d = 16; d > 0; d /= 2)
      mine = join(mine, {__shfl_xor_sync(~0u, mine.top, d), __shfl_xor_sync(~0u, mine.sum, d)});
    if (threadIdx.x == 0) of_warp[0] = mine;
  }
  __syncthreads();
  return of_warp[0];
}

extern "C" __global__ void softmax_f32(const float* in, float* out, int columns) {
  in += (size_t)blockIdx.x * columns;
  out += (size_t)blockIdx.x * columns;
  Online mine = {-CUDART_INF_F, 0.0f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) mine = join(mine, {in[i], 1.0f});
  Online all = join_block(mine);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = __expf(in[i] - all.top) / all.sum;
}

extern "C" __global__ void softmax_f16(const __half2* in, __half2* out, int pairs) {
  in += (size_t)blockIdx.x * pairs;
  out += (size_t)blockIdx.x * pairs;
  Online mine = {-CUDART_INF_F, 0.0f};
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    float2 two = __half22float2(in[i]);
    mine = join(mine, join({two.x, 1.0f}, {two.y, 1.0f}));
  }
  Online all = join_block(mine);
  float scale = 1.0f / all.sum;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    float2 two = __half22float2(in[i]);
    out[i] = __floats2half2_rn(expf(two.x - all.top) * scale, expf(two.y - all.top) * scale);
  }
}

struct Welford {
  float mean, squares, count;
};

__device__ Welford join(Welford a, Welford b) {
  float count = a.count + b.count;
  if (count == 0.0f) return a;
  float delta = b.mean - a.mean, part = b.count / count;
  return {a.mean + delta * part, a.squares + b.squares + delta * delta * a.count * part, count};
}

template <typename T>
__device__ float number(T x) {
  return (float)x;
}

template <typename T>
__device__ void layer_norm(const T* in, const T* gain, const T* bias, T* out, int columns, float epsilon) {
  __shared__ Welford of_warp[32];
  in += (size_t)blockIdx.x * columns;
  out += (size_t)blockIdx.x * columns;
  Welford mine = {0.0f, 0.0f, 0.0f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    float x = number(in[i]), delta = x - mine.mean;
    mine.count += 1.0f;
    mine.mean += delta / mine.count;
    mine.squares += delta * (x - mine.mean);
  }
  for (int d = 16; d > 0; d /= 2) {
    Welford other = {__shfl_down_sync(~0u, mine.mean, d), __shfl_down_sync(~0u, mine.squares, d),
                     __shfl_down_sync(~0u, mine.count, d)};
    mine = join(mine, other);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / 32; w++) mine = join(mine, of_warp[w]);
    of_warp[0] = mine;
  }
  __syncthreads();
  mine = of_warp[0];
  float scale = rsqrtf(mine.squares / mine.count + epsilon);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    out[i] = T((number(in[i]) - mine.mean) * scale * number(gain[i]) + number(bias[i]));
}

extern "C" __global__ void layer_norm_f32(const float* in, const float* gain, const float* bias, float* out,
                                          int columns, float epsilon) {
  layer_norm(in, gain, bias, out, columns, epsilon);
}

extern "C" __global__ void layer_norm_f16(const __half* in, const __half* gain, const __half* bias, __half* out,
                                          int columns, float epsilon) {
  layer_norm(in, gain, bias, out, columns, epsilon);
}

extern "C" __global__ void rms_norm_bf16(const __nv_bfloat16* in, const __nv_bfloat16* gain, __nv_bfloat16* out,
                                         int columns, float epsilon) {
  __shared__ float sums[32];
  in += (size_t)blockIdx.x * columns;
  out += (size_t)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    float x = __bfloat162float(in[i]);
    sum = fmaf(x, x, sum);
  }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (unsigned w = 0; w < blockDim.x / 32; w++) sum += sums[w];
  float scale = rsqrtf(sum / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    out[i] = __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(gain[i]));
}

// The loss of each row: log of the sum of exponentials, less the row's own class.
extern "C" __global__ void cross_entropy(const float* logits, const long long* classes, float* loss, int columns) {
  const float* row = logits + (size_t)blockIdx.x * columns;
  Online mine = {-CUDART_INF_F, 0.0f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) mine = join(mine, {row[i], 1.0f});
  Online all = join_block(mine);
  if (threadIdx.x == 0) loss[blockIdx.x] = logf(all.sum) + all.top - row[classes[blockIdx.x]];
}

extern "C" __global__ void gelu(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  out[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}
