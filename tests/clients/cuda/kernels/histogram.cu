// Histograms: counts in shared memory, one table a warp, and one atomic for all lanes that agree.

extern "C" __global__ void histogram_shared(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned counts[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&counts[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (counts[i]) atomicAdd(&out[i], counts[i]);
}

// Words of four bytes; a table of 64 bins for each warp of the block, in bytes packed by the compiler's choice.
extern "C" __global__ void histogram_words(const uchar4* in, unsigned* out, int n) {
  extern __shared__ unsigned tables[];
  unsigned* mine = tables + (threadIdx.x >> 5) * 64;
  for (unsigned i = threadIdx.x; i < blockDim.x * 2; i += blockDim.x) tables[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uchar4 four = in[i];
    atomicAdd(mine + (four.x >> 2), 1u);
    atomicAdd(mine + (four.y >> 2), 1u);
    atomicAdd(mine + (four.z >> 2), 1u);
    atomicAdd(mine + (four.w >> 2), 1u);
  }
  __syncthreads();
  if (threadIdx.x < 64) {
    unsigned sum = 0;
    for (unsigned w = 0; w < blockDim.x >> 5; w++) sum += tables[w * 64 + threadIdx.x];
    atomicAdd(&out[threadIdx.x], sum);
  }
}

extern "C" __global__ void histogram_match(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned here = __ballot_sync(~0u, i < n);
  if (i >= n) return;
  unsigned same = __match_any_sync(here, in[i]);
  if (__ffs(same) - 1 == (int)(threadIdx.x & 31)) atomicAdd(&out[in[i]], __popc(same));
}
