// Atomics of all widths, scopes and operations; a hash table; a lock; graph search by a frontier.
#include <cuda_fp16.h>

extern "C" __global__ void all_32(int* i, unsigned* u, float* f, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  atomicAdd(&i[0], t);
  atomicSub(&i[1], t);
  atomicMin(&i[2], -t);
  atomicMax(&i[3], t);
  atomicAnd(&i[4], ~(1 << (t & 31)));
  atomicOr(&i[5], 1 << (t & 15));
  atomicXor(&i[6], t);
  atomicInc(&u[0], 99u);
  atomicDec(&u[1], 99u);
  atomicMax(&u[2], 0x80000000u + t);
  atomicMin(&u[3], 0x80000000u + t);
  atomicExch(&u[4], 7u);
  atomicAdd(&f[0], 0.5f);
  atomicExch(&f[1], 2.5f);
  atomicAdd_block(&i[7], 1);
  atomicAdd_system(&i[8], 2);
}

extern "C" __global__ void all_64(unsigned long long* u, long long* s, double* d, int n) {
  __shared__ unsigned long long local;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t < n) {
    unsigned long long wide = (unsigned long long)t << 32 | t;
    atomicAdd(&u[0], wide);
    atomicMax(&u[1], wide);
    atomicMin(&u[2], ~wide);
    atomicAnd(&u[3], ~(1ull << (t & 63)));
    atomicOr(&u[4], 1ull << (t & 63));
    atomicXor(&u[5], wide);
    atomicExch(&u[6], 77ull);
    atomicMin(&s[0], -(long long)wide);
    atomicMax(&s[1], (long long)wide);
    atomicAdd(&d[0], 0.25);
    atomicAdd(&local, wide);
    // The greatest double, by comparing and swapping.
    unsigned long long* at = (unsigned long long*)&d[1];
    unsigned long long old = *at, assumed;
    double mine = (double)((t * 7919) % n);
    do {
      assumed = old;
      if (__longlong_as_double(assumed) >= mine) break;
      old = atomicCAS(at, assumed, __double_as_longlong(mine));
    } while (assumed != old);
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&u[7], local);
}

extern "C" __global__ void half_adds(__half2* pair, __half* one, unsigned short* swapped, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  atomicAdd(pair, __floats2half2_rn(1.0f, 0.5f));
  atomicAdd(one, __float2half(0.25f));
  unsigned short old = *(volatile unsigned short*)swapped, assumed;
  do {
    assumed = old;
    old = atomicCAS(swapped, assumed, (unsigned short)(assumed + 3));
  } while (assumed != old);
}

// Open addressing; keys are not 0.
extern "C" __global__ void insert_all(const unsigned* keys, unsigned* table, unsigned* counts, int n, unsigned mask) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned key = keys[i], slot = key * 2654435761u & mask;
  while (true) {
    unsigned was = atomicCAS(&table[slot], 0u, key);
    if (was == 0 || was == key) break;
    slot = (slot + 1) & mask;
  }
  atomicAdd(&counts[slot], 1u);
}

__device__ int taken = 0;

extern "C" __global__ void with_lock(volatile int* total, int rounds) {
  if (threadIdx.x) return;
  for (int r = 0; r < rounds; r++) {
    while (atomicCAS(&taken, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    *total = *total + 1;
    __threadfence();
    atomicExch(&taken, 0);
  }
}

extern "C" __global__ void next_frontier(const int* starts, const int* edges, int* depth, const int* frontier, int size,
                                         int* next, int* next_size, int level) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
    int node = frontier[i];
    for (int e = starts[node]; e < starts[node + 1]; e++)
      if (atomicCAS(&depth[edges[e]], -1, level) == -1) next[atomicAdd(next_size, 1)] = edges[e];
  }
}
