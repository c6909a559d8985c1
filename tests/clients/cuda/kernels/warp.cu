// A warp's operations: votes, ballots, shuffles of every kind and width, matches, barriers that count, named barriers.

extern "C" __global__ void votes(const int* in, unsigned* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, value = in[i];
  unsigned lane_mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lane_mask));
  out[8 * i] = __ballot_sync(~0u, value > 0);
  out[8 * i + 1] = __all_sync(~0u, value > -100) | __any_sync(~0u, value > 90) << 1;
  out[8 * i + 2] = lane_mask;
  out[8 * i + 3] = 0;
  out[8 * i + 4] = 0;
  if (value > 0) {
    out[8 * i + 3] = __activemask();
    out[8 * i + 4] = __popc(__ballot_sync(__activemask(), value & 1));
  }
  int same;
  out[8 * i + 5] = __match_any_sync(~0u, value & 7);
  out[8 * i + 6] = __match_all_sync(~0u, i / 64, &same);
  out[8 * i + 7] = same;
}

extern "C" __global__ void shuffles(const int* in, int* out) {
  int i = threadIdx.x, value = in[i];
  out[i] = __shfl_sync(~0u, value, i * 5);
  out[32 + i] = __shfl_sync(~0u, value, i + 3, 8);
  out[64 + i] = __shfl_up_sync(~0u, value, 3);
  out[96 + i] = __shfl_up_sync(~0u, value, 2, 4);
  out[128 + i] = __shfl_down_sync(~0u, value, 5, 16);
  out[160 + i] = __shfl_xor_sync(~0u, value, 17);
  out[192 + i] = 0;
  if (i >= 8 && i < 24) out[192 + i] = __shfl_xor_sync(0x00ffff00u, value, 1);
}

extern "C" __global__ void counting(const int* in, int* out) {
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  int count = __syncthreads_count(value > 0), all = __syncthreads_and(value != 0), any = __syncthreads_or(value == 13);
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = count;
    out[3 * blockIdx.x + 1] = all != 0;
    out[3 * blockIdx.x + 2] = any != 0;
  }
}

// Half of the block makes, the other half takes, over two named barriers.
extern "C" __global__ void makers_and_takers(const int* in, int* out, int rounds) {
  __shared__ int slot[64];
  int me = threadIdx.x % 64;
  if (threadIdx.x < 64) {
    for (int r = 0; r < rounds; r++) {
      slot[me] = in[r * 64 + me] * 2;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    }
  } else {
    for (int r = 0; r < rounds; r++) {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[r * 64 + me] = slot[63 - me] + 1;
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}

// Threads leave one after the other; the barrier waits for those that remain.
extern "C" __global__ void leaving(int* out) {
  __shared__ int last;
  for (int r = 0; r < (int)blockDim.x; r++) {
    if (threadIdx.x == r && r + 1 < (int)blockDim.x) return;
    if (threadIdx.x == blockDim.x - 1) last = r;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) out[r] = last;
    __syncthreads();
  }
}

// Barriers in a loop whose length is the block's own, in a branch that the whole block takes.
extern "C" __global__ void uniform_branches(const int* lengths, int* out) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (int r = 0; r < lengths[blockIdx.x]; r++) {
    if (r % 3 == 1) {
      if (threadIdx.x % 2) atomicAdd(&sum, r);
      __syncthreads();
    } else {
      __syncthreads();
      if (threadIdx.x == r % blockDim.x) sum *= 2;
      __syncthreads();
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void places(unsigned* out) {
  unsigned lane, warp, ge;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
  unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* o = out + 4 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
  o[0] = lane, o[1] = warp, o[2] = ge, o[3] = blockDim.x * 1000000 + gridDim.y * 10000 + gridDim.z * 100 + warpSize;
}
