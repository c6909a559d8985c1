/* Kernels that kernels.cpp runs and checks: arguments beyond the registers, relocations of every usual kind, barriers. */
#include <hcq.h>
#include <math.h>
#include <string.h>

static int counter = 5;
int zeroes[1000];
const char *const names[] = {"zero", "one", "two"};
static double (*const operations[])(double) = {sin, cos, exp};

__attribute__((noinline)) static int choose(int x) {
  switch (x) {
    case 0: return 7;
    case 1: return 11;
    case 2: return 13;
    case 3: return 17;
    case 4: return 19;
    case 5: return 23;
    case 6: return 1000;
    default: return -1;
  }
}

#define PARAMETERS                                                                                              \
  double *out, double a, float b, int n, signed char c, unsigned short d, long e, _Bool f, float x0, float x1, \
      float x2, float x3, float x4, float x5, float x6, float x7, int y0, int y1, int y2, int y3, short y4

void plain(PARAMETERS) {
  double given[] = {a, b, n, c, d, e, f, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4};
  memcpy(out, given, sizeof given);
  out[20] = operations[n % 3](a);
  out[21] = strlen(names[n % 3]);
  out[22] = choose(n);
  out[23] = ++counter;
  zeroes[n] += 3;
  out[24] = zeroes[n];
}

HCQ_KERNEL void arguments(PARAMETERS) {
  hcq_barrier();
  if (hcq_local_id(0) == 2) plain(out, a, b, n, c, d, e, f, x0, x1, x2, x3, x4, x5, x6, x7, y0, y1, y2, y3, y4);
}

HCQ_KERNEL void sum(float *out, const float *in) {
  HCQ_LOCAL float tile[256];
  unsigned i = hcq_local_id(0);
  tile[i] = in[hcq_group_id(0) * 256 + i];
  for (unsigned half = 128; half > 0; half /= 2) {
    hcq_barrier();
    if (i < half) tile[i] += tile[i + half];
  }
  if (i == 0) out[hcq_group_id(0)] = tile[0];
}

HCQ_KERNEL void early(int *out, int keep) {
  HCQ_LOCAL int tile[64];
  int i = hcq_local_id(0);
  tile[i] = i;
  hcq_barrier();
  if (i % 3 == keep) return;
  out[i] += tile[(i + 1) % 64];
  hcq_barrier();
  if (i % 2) return;
  hcq_barrier();
  out[i] += 1000;
}

HCQ_KERNEL void registers(double *out, double a, float b) {
  int i = hcq_local_id(0);
  double v[8];
  for (int k = 0; k < 8; ++k) v[k] = a * i + k;
  float w = b + i;
  hcq_barrier();
  double s = w;
  for (int k = 0; k < 8; ++k) {
    s += v[k];
    hcq_barrier();
  }
  out[i] = s;
}
