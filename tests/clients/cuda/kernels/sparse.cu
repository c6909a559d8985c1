// Sparse matrix times vector, rows compressed: a thread a row, a warp a row; and in coordinates with atomics.

template <typename T>
__global__ void csr_scalar(const int* starts, const int* columns, const T* values, const T* x, T* y, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  T sum = 0;
  for (int i = starts[row]; i < starts[row + 1]; i++) sum += values[i] * x[columns[i]];
  y[row] = sum;
}

template <typename T>
__global__ void csr_warp(const int* starts, const int* columns, const T* values, const T* x, T* y, int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
  if (row >= rows) return;
  T sum = 0;
  for (int i = starts[row] + lane; i < starts[row + 1]; i += warpSize) sum += __ldg(&values[i]) * __ldg(&x[columns[i]]);
  for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
  if (lane == 0) y[row] = sum;
}

extern "C" __global__ void coordinates(const int* rows, const int* columns, const double* values, const double* x,
                                       double* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&y[rows[i]], values[i] * x[columns[i]]);
}
