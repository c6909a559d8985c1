// Data: loads and stores of several widths, hints for the cache, compaction, k-means, sums over segments, a heap of work.

extern "C" __global__ void vectors(const int4* in, int4* out, const short4* s, short4* s_out, const double2* d,
                                   double2* d_out, const uchar2* c, uchar2* c_out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int4 v = in[i];
  out[i] = make_int4(v.w, v.z, v.y, v.x);
  short4 h = s[i];
  s_out[i] = make_short4(h.y, h.x, h.w, h.z);
  double2 w = d[i];
  d_out[i] = make_double2(w.y, w.x);
  uchar2 b = c[i];
  c_out[i] = make_uchar2(b.y + 1, b.x - 1);
}

extern "C" __global__ void hints(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = __ldg(in + i) + __ldcg(in + i) + __ldca(in + i) + __ldcs(in + i) + __ldlu(in + i) + __ldcv(in + i);
  if (i & 1) __stcg(out + i, sum);
  else if (i & 2) __stcs(out + i, sum);
  else __stwt(out + i, sum);
}

extern "C" __global__ void compact(const float* in, float* out, int* count, int n, float limit) {
  __shared__ int base, of_warp[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  bool keep = i < n && in[i] > limit;
  unsigned kept = __ballot_sync(~0u, keep);
  if (lane == 0) of_warp[warp] = __popc(kept);
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
      int mine = of_warp[w];
      of_warp[w] = sum;
      sum += mine;
    }
    base = atomicAdd(count, sum);
  }
  __syncthreads();
  if (keep) out[base + of_warp[warp] + __popc(kept & ((1u << lane) - 1))] = in[i];
}

extern "C" __global__ void nearest(const float2* points, const float2* centres, int* labels, float2* sums, int* counts,
                                   int n, int k) {
  extern __shared__ float2 near[];
  if (threadIdx.x < k) near[threadIdx.x] = centres[threadIdx.x];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float best = 3.4e38f;
  int label = -1;
  float2 p = points[i];
  for (int c = 0; c < k; c++) {
    float dx = p.x - near[c].x, dy = p.y - near[c].y, d = dx * dx + dy * dy;
    if (d < best) best = d, label = c;
  }
  labels[i] = label;
  atomicAdd(&sums[label].x, p.x);
  atomicAdd(&sums[label].y, p.y);
  atomicAdd(&counts[label], 1);
}

// Sums over runs of equal keys within a warp, by a scan that stops at the heads.
extern "C" __global__ void segments(const int* keys, const float* values, float* sums, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  int key = i < n ? keys[i] : -1;
  float value = i < n ? values[i] : 0.0f;
  for (int d = 1; d < 32; d *= 2) {
    float other = __shfl_up_sync(~0u, value, d);
    int other_key = __shfl_up_sync(~0u, key, d);
    if (lane >= d && other_key == key) value += other;
  }
  int next = __shfl_down_sync(~0u, key, 1);
  if (i < n && (lane == 31 || next != key || i == n - 1)) atomicAdd(&sums[key], value);
}

// Tri-diagonal systems by cyclic reduction's simpler sister: one thread a system, in place.
extern "C" __global__ void thomas(const double* lower, double* diagonal, const double* upper, double* right, int size,
                                  int systems) {
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= systems) return;
  for (int i = 1; i < size; i++) {
    double w = lower[i * systems + s] / diagonal[(i - 1) * systems + s];
    diagonal[i * systems + s] -= w * upper[(i - 1) * systems + s];
    right[i * systems + s] -= w * right[(i - 1) * systems + s];
  }
  right[(size - 1) * systems + s] /= diagonal[(size - 1) * systems + s];
  for (int i = size - 2; i >= 0; i--)
    right[i * systems + s] =
        (right[i * systems + s] - upper[i * systems + s] * right[(i + 1) * systems + s]) / diagonal[i * systems + s];
}

extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    y[i] = a * x[i] + y[i];
}

extern "C" __global__ void managed_nothing() {}
