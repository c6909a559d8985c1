// Systems of equations: small ones by the batch, one a warp or a block; a large one by conjugate gradients in one grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

#define N 24

// LU with pivots of rows, one matrix a block of N threads, in shared memory.
extern "C" __global__ void lu_batched(double* matrices, int* pivots, double* right) {
  __shared__ double a[N][N + 1], b[N];
  __shared__ int best;
  double* own = matrices + (size_t)blockIdx.x * N * N;
  int t = threadIdx.x;
  for (int i = 0; i < N; i++) a[i][t] = own[i * N + t];
  b[t] = right[blockIdx.x * N + t];
  for (int k = 0; k < N; k++) {
    __syncthreads();
    if (t == 0) {
      best = k;
      for (int i = k + 1; i < N; i++)
        if (fabs(a[i][k]) > fabs(a[best][k])) best = i;
      pivots[blockIdx.x * N + k] = best;
    }
    __syncthreads();
    if (best != k) {
      double x = a[k][t];
      a[k][t] = a[best][t], a[best][t] = x;
      if (t == 0) x = b[k], b[k] = b[best], b[best] = x;
    }
    __syncthreads();
    if (t > k) {
      double factor = a[t][k] / a[k][k];
      a[t][k] = factor;
      for (int j = k + 1; j < N; j++) a[t][j] -= factor * a[k][j];
      b[t] -= factor * b[k];
    }
  }
  for (int k = N - 1; k >= 0; k--) {
    __syncthreads();
    if (t == k) b[k] /= a[k][k];
    __syncthreads();
    if (t < k) b[t] -= a[t][k] * b[k];
  }
  __syncthreads();
  for (int i = 0; i < N; i++) own[i * N + t] = a[i][t];
  right[blockIdx.x * N + t] = b[t];
}

// Cholesky of symmetric positive matrices, one a warp, a row a lane, columns by shuffles.
extern "C" __global__ void cholesky_warps(float* matrices, int count) {
  int matrix = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (matrix >= count) return;
  float row[32];
  for (int j = 0; j < 32; j++) row[j] = matrices[(matrix * 32 + lane) * 32 + j];
  for (int k = 0; k < 32; k++) {
    float pivot = sqrtf(__shfl_sync(~0u, row[k], k));
    float mine = lane == k ? pivot : row[k] / pivot;
    if (lane >= k) row[k] = mine;
    for (int j = k + 1; j < 32; j++) {
      float other = __shfl_sync(~0u, mine, j);
      if (lane >= j) row[j] -= mine * other;
    }
  }
  for (int j = 0; j < 32; j++) matrices[(matrix * 32 + lane) * 32 + j] = j <= lane ? row[j] : 0.0f;
}

// x of A x = b for the Laplacian of a line, all iterations in one cooperative launch.
extern "C" __global__ void conjugate_gradients(const double* b, double* x, double* r, double* p, double* ap, double* dots,
                                               int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto add = [&](double value, double* to) {
    value = cg::reduce(warp, value, cg::plus<double>());
    if (warp.thread_rank() == 0) atomicAdd(to, value);
  };
  int first = grid.thread_rank(), step = grid.size();
  double mine = 0.0;
  for (int i = first; i < n; i += step) {
    x[i] = 0.0;
    r[i] = p[i] = b[i];
    mine += b[i] * b[i];
  }
  add(mine, &dots[0]);
  grid.sync();
  for (int round = 0; round < rounds; round++) {
    double before = dots[2 * round];
    mine = 0.0;
    for (int i = first; i < n; i += step) {
      double around = (i > 0 ? p[i - 1] : 0.0) + (i + 1 < n ? p[i + 1] : 0.0);
      ap[i] = 2.5 * p[i] - around;
      mine += p[i] * ap[i];
    }
    add(mine, &dots[2 * round + 1]);
    grid.sync();
    double alpha = before / dots[2 * round + 1];
    mine = 0.0;
    for (int i = first; i < n; i += step) {
      x[i] += alpha * p[i];
      r[i] -= alpha * ap[i];
      mine += r[i] * r[i];
    }
    add(mine, &dots[2 * round + 2]);
    grid.sync();
    double beta = dots[2 * round + 2] / before;
    for (int i = first; i < n; i += step) p[i] = r[i] + beta * p[i];
    grid.sync();
  }
}
