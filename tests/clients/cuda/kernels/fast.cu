// Functions of single precision as instructions have them, by name and by what --use_fast_math makes of others.

extern "C" __global__ void fast(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i], p = fabsf(x) + 0.01f, *o = out + 10 * i;
  o[0] = __sinf(x), o[1] = __cosf(x), o[2] = __expf(x), o[3] = __logf(p), o[4] = __log2f(p), o[5] = __powf(p, 0.3f);
  o[6] = __fdividef(x, p), o[7] = rsqrtf(p), o[8] = __tanf(x), o[9] = __exp10f(x * 0.1f);
}
