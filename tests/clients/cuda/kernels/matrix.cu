// Dense matrices: products by tiles and by registers, transposes, convolution from constant memory.

template <typename T, int TILE>
__global__ void product(const T* a, const T* b, T* c, int m, int n, int k) {
  __shared__ T left[TILE][TILE], right[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  T sum = 0;
  for (int base = 0; base < k; base += TILE) {
    left[threadIdx.y][threadIdx.x] = row < m && base + threadIdx.x < k ? a[row * k + base + threadIdx.x] : T(0);
    right[threadIdx.y][threadIdx.x] = column < n && base + threadIdx.y < k ? b[(base + threadIdx.y) * n + column] : T(0);
    __syncthreads();
    for (int i = 0; i < TILE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

// 32 x 32 of the result a block of 64 threads, four by four a thread, loads of four numbers. Sizes are multiples of 32.
extern "C" __global__ void product_registers(const float* a, const float* b, float* c, int n, int k) {
  __shared__ __align__(16) float left[8][32], right[8][32];
  int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
  float sum[4][4] = {};
  a += (size_t)blockIdx.y * 32 * k;
  b += blockIdx.x * 32;
  for (int base = 0; base < k; base += 8) {
    int row = threadIdx.x / 2, part = threadIdx.x % 2 * 4;
    float4 four = *(const float4*)(a + row * k + base + part);
    left[part][row] = four.x, left[part + 1][row] = four.y, left[part + 2][row] = four.z, left[part + 3][row] = four.w;
    *(float4*)&right[threadIdx.x / 8][threadIdx.x % 8 * 4] =
        *(const float4*)(b + (base + threadIdx.x / 8) * n + threadIdx.x % 8 * 4);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float4 x = *(float4*)&left[i][ty * 4], y = *(float4*)&right[i][tx * 4];
      float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int p = 0; p < 4; p++)
#pragma unroll
        for (int q = 0; q < 4; q++) sum[p][q] = fmaf(xs[p], ys[q], sum[p][q]);
    }
    __syncthreads();
  }
  for (int p = 0; p < 4; p++)
    *(float4*)(c + (size_t)(blockIdx.y * 32 + ty * 4 + p) * n + blockIdx.x * 32 + tx * 4) =
        make_float4(sum[p][0], sum[p][1], sum[p][2], sum[p][3]);
}

template <typename T>
__global__ void transpose(const T* in, T* out, int rows, int columns) {
  __shared__ T tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += blockDim.y)
    if (x < columns && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += blockDim.y)
    if (x < rows && y + j < columns) out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

__constant__ float taps[25];

extern "C" __global__ void convolve(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0.0f;
#pragma unroll
  for (int dy = -2; dy <= 2; dy++)
#pragma unroll
    for (int dx = -2; dx <= 2; dx++)
      if (x + dx >= 0 && x + dx < width && y + dy >= 0 && y + dy < height)
        sum += in[(y + dy) * width + x + dx] * taps[(dy + 2) * 5 + dx + 2];
  out[y * width + x] = sum;
}

// All shortest ways, one block: n <= blockDim.x.
extern "C" __global__ void shortest_ways(int* distance, int n) {
  for (int via = 0; via < n; via++) {
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
      int from = i / n, to = i % n;
      int d = distance[from * n + via] + distance[via * n + to];
      if (from != via && to != via && d < distance[i]) distance[i] = d;
    }
    __syncthreads();
  }
}
