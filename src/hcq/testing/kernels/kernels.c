/* The kernels of the conformance suite (KERNELS in driver.py says what each does) for devices that take C. */
#include <hcq.h>
#include <stdint.h>

void fill(int32_t* out, int32_t n, int32_t value) {
  for (int32_t i = 0; i < n; i++) out[i] = value;
}

void iota(int32_t* out, int32_t n, int32_t start) {
  for (int32_t i = 0; i < n; i++) out[i] = start + i;
}

void add(int32_t* out, const int32_t* a, const int32_t* b, int32_t n) {
  for (int32_t i = 0; i < n; i++) out[i] = (int32_t)((uint32_t)a[i] + (uint32_t)b[i]);
}

void increment(int32_t* out) { out[0] += 1; }

void append(int32_t* log, int32_t value) {
  int32_t count = log[0] + 1;
  log[0] = count;
  log[count] = value;
}

/* A store and a load of the same word take some 2 ns, on any machine. */
void spin(int32_t* out, int32_t n) {
  for (volatile int32_t left = n / 2; left > 0; left--) {
  }
  out[0] = n;
}

void nothing(void) {}

void values(int64_t* out, int8_t a, int16_t b, int32_t c, int64_t d, float e, double f) {
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
  ((double*)out)[4] = e;
  ((double*)out)[5] = f;
}

void raw(uint32_t* out, uint32_t a) { out[0] = a; }

#define EIGHT(type, x, y) \
  type x##y##0, type x##y##1, type x##y##2, type x##y##3, type x##y##4, type x##y##5, type x##y##6, type x##y##7
#define POINTERS(y) EIGHT(const int32_t*, b, y)
#define INTEGERS(y) EIGHT(int32_t, v, y)
#define SUM(x, y) (x##y##0 + x##y##1 + x##y##2 + x##y##3 + x##y##4 + x##y##5 + x##y##6 + x##y##7)
#define SUM_AT(y) (*b##y##0 + *b##y##1 + *b##y##2 + *b##y##3 + *b##y##4 + *b##y##5 + *b##y##6 + *b##y##7)

/* The first buffer, b00, is the output. */
void sixty_four(int32_t* b00, const int32_t* b01, const int32_t* b02, const int32_t* b03, const int32_t* b04,
                const int32_t* b05, const int32_t* b06, const int32_t* b07, POINTERS(1), POINTERS(2), POINTERS(3),
                INTEGERS(0), INTEGERS(1), INTEGERS(2), INTEGERS(3)) {
  int32_t first = *b01 + *b02 + *b03 + *b04 + *b05 + *b06 + *b07;
  b00[0] = first + SUM_AT(1) + SUM_AT(2) + SUM_AT(3) + SUM(v, 0) + SUM(v, 1) + SUM(v, 2) + SUM(v, 3);
}

static inline uint32_t linear(uint32_t (*id)(uint32_t), uint32_t (*size)(uint32_t)) {
  return (id(2) * size(1) + id(1)) * size(0) + id(0);
}

HCQ_KERNEL void grid(int32_t* out) {
  uint32_t group = linear(hcq_group_id, hcq_num_groups), item = linear(hcq_local_id, hcq_local_size);
  uint32_t items = hcq_local_size(0) * hcq_local_size(1) * hcq_local_size(2);
  out[group * items + item] += (int32_t)(group * 1000 + item + 1);
}

HCQ_KERNEL void barrier(int32_t* out, int32_t rounds) {
  HCQ_LOCAL int32_t shared[256];
  uint32_t item = hcq_local_id(0), items = hcq_local_size(0);
  int32_t sum = 0;
  for (int32_t round = 0; round < rounds; round++) {
    shared[item] = (int32_t)item + round;
    hcq_barrier();
    sum += shared[(item + 1) % items];
    hcq_barrier();
  }
  out[hcq_group_id(0) * items + item] = sum;
}
