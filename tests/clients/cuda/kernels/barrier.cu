// Barriers in memory, of the header cuda_awbarrier_primitives.h (compute capability 8.0): arrive, then wait for a token.
#include <cuda_awbarrier_primitives.h>

extern "C" __global__ void turns(const int* in, int* out, int rounds) {
  __shared__ __mbarrier_t barrier;
  __shared__ int values[128];
  if (threadIdx.x == 0) __mbarrier_init(&barrier, blockDim.x);
  __syncthreads();
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int r = 0; r < rounds; r++) {
    values[threadIdx.x] = value;
    __mbarrier_token_t token = __mbarrier_arrive(&barrier);
    while (!__mbarrier_test_wait(&barrier, token)) {
    }
    value += values[(threadIdx.x + 1) % blockDim.x];
    token = __mbarrier_arrive(&barrier);
    while (!__mbarrier_test_wait(&barrier, token)) {
    }
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
