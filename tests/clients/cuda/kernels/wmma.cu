// Products by the header of warp matrices, mma.h.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

// One warp: 16 x 16 of c = a (16 x k) times b (k x 16); k a multiple of 16.
extern "C" __global__ void warp_matrix(const __half* a, const __half* b, float* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i * 16, 16);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2.0f;
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

// The same in half precision all through, b given by columns.
extern "C" __global__ void warp_matrix_half(const __half* a, const __half* b, __half* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, __half> sum;
  wmma::fill_fragment(sum, __float2half(0.0f));
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

// Four warps, 32 x 32 of the result: operands and result by way of shared memory, then a bias and a rectifier.
extern "C" __global__ void warp_matrix_shared(const __half* a, const __half* b, const float* bias, __half* c, int k) {
  __shared__ __align__(32) __half left[32][16 + 8], right[16][32 + 8];
  __shared__ __align__(32) float result[32][32 + 4];
  int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int base = 0; base < k; base += 16) {
    for (int i = threadIdx.x; i < 512; i += blockDim.x) {
      left[i / 16][i % 16] = a[i / 16 * k + base + i % 16];
      right[i / 32][i % 32] = b[(base + i / 32) * 32 + i % 32];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, &left[row][0], 24);
    wmma::load_matrix_sync(fb, &right[0][column], 40);
    wmma::mma_sync(sum, fa, fb, sum);
    __syncthreads();
  }
  wmma::store_matrix_sync(&result[row][column], sum, 36, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < 1024; i += blockDim.x)
    c[i] = __float2half(fmaxf(result[i / 32][i % 32] + bias[i % 32], 0.0f));
}
