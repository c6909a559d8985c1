// Heat in two dimensions with a halo in shared memory; a seven-point stencil in three, planes marching through registers.

#define TILE 16

extern "C" __global__ void heat_2d(const float* in, float* out, int width, int height, float alpha) {
  __shared__ float tile[TILE + 2][TILE + 2];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  int lx = threadIdx.x + 1, ly = threadIdx.y + 1;
  auto at = [&](int cx, int cy) {
    cx = min(max(cx, 0), width - 1);
    cy = min(max(cy, 0), height - 1);
    return in[cy * width + cx];
  };
  tile[ly][lx] = at(x, y);
  if (threadIdx.x == 0) tile[ly][0] = at(x - 1, y);
  if (threadIdx.x == TILE - 1) tile[ly][TILE + 1] = at(x + 1, y);
  if (threadIdx.y == 0) tile[0][lx] = at(x, y - 1);
  if (threadIdx.y == TILE - 1) tile[TILE + 1][lx] = at(x, y + 1);
  __syncthreads();
  if (x >= width || y >= height) return;
  float c = tile[ly][lx];
  out[y * width + x] =
      c + alpha * (tile[ly][lx - 1] + tile[ly][lx + 1] + tile[ly - 1][lx] + tile[ly + 1][lx] - 4.0f * c);
}

// Threads of a block cover x and y; each walks along z with the planes below and above in registers.
extern "C" __global__ void seven_points(const float* __restrict__ in, float* __restrict__ out, int nx, int ny, int nz) {
  __shared__ float plane[10][18];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  bool inside = x < nx && y < ny;
  bool inner = x > 0 && x < nx - 1 && y > 0 && y < ny - 1;
  size_t step = (size_t)nx * ny, i = (size_t)y * nx + x;
  float below = 0.0f, here = inside ? in[i] : 0.0f, above = inside && nz > 1 ? in[i + step] : 0.0f;
  int lx = threadIdx.x + 1, ly = threadIdx.y + 1;
  for (int z = 0; z < nz; z++) {
    plane[ly][lx] = here;
    if (threadIdx.x == 0 && x > 0 && y < ny) plane[ly][0] = in[i - 1];
    if (threadIdx.x == 15 && x + 1 < nx && y < ny) plane[ly][17] = in[i + 1];
    if (threadIdx.y == 0 && y > 0 && x < nx) plane[0][lx] = in[i - nx];
    if (threadIdx.y == 7 && y + 1 < ny && x < nx) plane[9][lx] = in[i + nx];
    __syncthreads();
    if (inside) {
      if (inner && z > 0 && z < nz - 1)
        out[i] = (plane[ly][lx - 1] + plane[ly][lx + 1] + plane[ly - 1][lx] + plane[ly + 1][lx] + below + above) -
                 6.0f * here;
      else
        out[i] = here;
    }
    __syncthreads();
    below = here;
    here = above;
    i += step;
    above = inside && z + 2 < nz ? in[i + step] : 0.0f;
  }
}
