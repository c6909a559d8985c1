// Fourier transforms of 2 * blockDim.x points a block, radix 2, in shared memory; single and double precision.

template <typename Real, typename Complex>
__device__ void transform(const Complex* in, Complex* out, int bits, int inverse, Complex* s) {
  int n = 1 << bits, half = n / 2, me = threadIdx.x;
  in += (size_t)blockIdx.x * n;
  out += (size_t)blockIdx.x * n;
  for (int i = me; i < n; i += half) s[__brev(i) >> (32 - bits)] = in[i];
  __syncthreads();
  for (int span = 1; span < n; span *= 2) {
    int k = me & (span - 1), at = 2 * me - k;
    Real sine, cosine, turn = (Real)k / (Real)span;
    if (sizeof(Real) == 4) {
      float a, b;
      sincospif((float)turn, &a, &b);
      sine = a, cosine = b;
    } else {
      double a, b;
      sincospi((double)turn, &a, &b);
      sine = a, cosine = b;
    }
    if (!inverse) sine = -sine;
    Complex u = s[at], w = s[at + span];
    Real re = w.x * cosine - w.y * sine, im = w.x * sine + w.y * cosine;
    s[at].x = u.x + re;
    s[at].y = u.y + im;
    s[at + span].x = u.x - re;
    s[at + span].y = u.y - im;
    __syncthreads();
  }
  Real scale = inverse ? (Real)1 / n : (Real)1;
  for (int i = me; i < n; i += half) {
    out[i].x = s[i].x * scale;
    out[i].y = s[i].y * scale;
  }
}

extern "C" __global__ void fft_f32(const float2* in, float2* out, int bits, int inverse) {
  extern __shared__ float2 single[];
  transform<float, float2>(in, out, bits, inverse, single);
}

extern "C" __global__ void fft_f64(const double2* in, double2* out, int bits, int inverse) {
  extern __shared__ double2 twice[];
  transform<double, double2>(in, out, bits, inverse, twice);
}
