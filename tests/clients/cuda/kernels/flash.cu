// Attention forward on matrix instructions: keys and values come by cp.async, two tiles in turn, while the tile before
// is multiplied; scores never leave registers.
#include <cuda_fp16.h>
#include <math_constants.h>

#define HEAD 64
#define ROWS 64     // queries of a block, 16 a warp
#define COLUMNS 32  // keys of a tile
#define PITCH (HEAD + 8)

__device__ unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

__device__ void load_four(unsigned (&x)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(at)));
}

__device__ void load_four_turned(unsigned (&x)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(at)));
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void fetch(__half (*to)[PITCH], const __half* from, int first, int length) {
  for (int i = threadIdx.x; i < COLUMNS * HEAD / 8; i += blockDim.x) {
    int row = i / (HEAD / 8), column = i % (HEAD / 8) * 8;
    int bytes = first + row < length ? 16 : 0;  // past the end: zeros
    const __half* source = from + (size_t)min(first + row, length - 1) * HEAD + column;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(&to[row][column])), "l"(source), "r"(bytes));
  }
  asm volatile("cp.async.commit_group;");
}

__device__ unsigned two_halves(float low, float high) {
  __half2 both = __floats2half2_rn(low, high);
  return *(unsigned*)&both;
}

extern "C" __global__ void __launch_bounds__(128)
    flash(const __half* q, const __half* k, const __half* v, __half* out, float* logs, int length, float scale, int causal) {
  __shared__ __align__(16) __half queries[ROWS][PITCH], keys[2][COLUMNS][PITCH], values[2][COLUMNS][PITCH];
  size_t head = (size_t)blockIdx.y * length * HEAD;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
  int top_row = blockIdx.x * ROWS, row = top_row + warp * 16 + group;
  for (int i = threadIdx.x; i < ROWS * HEAD / 8; i += blockDim.x) {
    int r = i / (HEAD / 8), c = i % (HEAD / 8) * 8;
    uint4 bits = top_row + r < length ? *(const uint4*)(q + head + (size_t)(top_row + r) * HEAD + c) : uint4{0, 0, 0, 0};
    *(uint4*)&queries[r][c] = bits;
  }
  int tiles = (length + COLUMNS - 1) / COLUMNS;
  if (causal) tiles = min(tiles, (top_row + ROWS + COLUMNS - 1) / COLUMNS);
  fetch(keys[0], k + head, 0, length);
  fetch(values[0], v + head, 0, length);
  __syncthreads();
  unsigned a[HEAD / 16][4];
  for (int i = 0; i < HEAD / 16; i++) load_four(a[i], &queries[warp * 16 + lane % 16][i * 16 + lane / 16 * 8]);
  float sums[HEAD / 8][4] = {}, most[2] = {-CUDART_INF_F, -CUDART_INF_F}, weights[2] = {};
  for (int tile = 0; tile < tiles; tile++) {
    int now = tile & 1;
    if (tile + 1 < tiles) {
      fetch(keys[now ^ 1], k + head, (tile + 1) * COLUMNS, length);
      fetch(values[now ^ 1], v + head, (tile + 1) * COLUMNS, length);
      asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    float scores[COLUMNS / 8][4] = {};
    for (int i = 0; i < HEAD / 16; i++)
      for (int j = 0; j < COLUMNS / 16; j++) {
        unsigned b[4];
        load_four(b, &keys[now][j * 16 + lane % 8 + lane / 16 * 8][i * 16 + lane / 8 % 2 * 8]);
        multiply(scores[2 * j], a[i], b[0], b[1]);
        multiply(scores[2 * j + 1], a[i], b[2], b[3]);
      }
    float best[2] = {most[0], most[1]};
    for (int j = 0; j < COLUMNS / 8; j++)
      for (int e = 0; e < 4; e++) {
        int column = tile * COLUMNS + j * 8 + pair * 2 + e % 2, own = row + e / 2 * 8;
        bool seen = column < length && !(causal && column > own);
        scores[j][e] = seen ? scores[j][e] * scale : -CUDART_INF_F;
        best[e / 2] = fmaxf(best[e / 2], scores[j][e]);
      }
    for (int h = 0; h < 2; h++) {
      best[h] = fmaxf(best[h], __shfl_xor_sync(~0u, best[h], 1));
      best[h] = fmaxf(best[h], __shfl_xor_sync(~0u, best[h], 2));
      float keep = most[h] == -CUDART_INF_F ? 0.0f : __expf(most[h] - best[h]);
      weights[h] *= keep;
      for (int j = 0; j < HEAD / 8; j++) sums[j][2 * h] *= keep, sums[j][2 * h + 1] *= keep;
      most[h] = best[h];
    }
    for (int j = 0; j < COLUMNS / 8; j++)
      for (int e = 0; e < 4; e++) {
        scores[j][e] = best[e / 2] == -CUDART_INF_F ? 0.0f : __expf(scores[j][e] - best[e / 2]);
        weights[e / 2] += scores[j][e];
      }
    for (int i = 0; i < COLUMNS / 16; i++) {
      unsigned p[4] = {two_halves(scores[2 * i][0], scores[2 * i][1]), two_halves(scores[2 * i][2], scores[2 * i][3]),
                       two_halves(scores[2 * i + 1][0], scores[2 * i + 1][1]),
                       two_halves(scores[2 * i + 1][2], scores[2 * i + 1][3])};
      for (int j = 0; j < HEAD / 16; j++) {
        unsigned b[4];
        load_four_turned(b, &values[now][i * 16 + lane % 16][j * 16 + lane / 16 * 8]);
        multiply(sums[2 * j], p, b[0], b[1]);
        multiply(sums[2 * j + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();
  }
  for (int h = 0; h < 2; h++) {
    weights[h] += __shfl_xor_sync(~0u, weights[h], 1);
    weights[h] += __shfl_xor_sync(~0u, weights[h], 2);
    int own = row + 8 * h;
    if (own >= length) continue;
    if (pair == 0) logs[(size_t)blockIdx.y * length + own] = most[h] + __logf(weights[h]);
    for (int j = 0; j < HEAD / 8; j++)
      *(__half2*)(out + head + (size_t)own * HEAD + j * 8 + pair * 2) =
          __floats2half2_rn(sums[j][2 * h] / weights[h], sums[j][2 * h + 1] / weights[h]);
  }
}
