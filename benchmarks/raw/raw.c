// The raw cost of what the benchmarks measure: what the machine itself takes, from C, with nothing of Python between. Built by
// benchmarks/workers/on_raw.py with `cc -O3 -march=native -fopenmp -shared`. Every function returns nanoseconds, for all `n` together.
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void pause_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// --- calls -----------------------------------------------------------------------------------------------------------

static __attribute__((noinline)) void add(int* a, int* b, int* c) { c[0] += a[0] + b[0]; }
static void (*volatile add_pointer)(int*, int*, int*) = add;

uint64_t raw_call(uint64_t n, int* a, int* b, int* c) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) add_pointer(a, b, c);
  return now() - start;
}

uint64_t raw_clock(uint64_t n) {
  uint64_t start = now(), sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += now();
  return now() - start + (sum == 0);
}

// --- signals ---------------------------------------------------------------------------------------------------------

static _Atomic uint64_t word;

uint64_t raw_signal_query(uint64_t n) {
  uint64_t start = now(), sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += atomic_load_explicit(&word, memory_order_acquire);
  return now() - start + (sum == 1);
}

uint64_t raw_signal_set(uint64_t n) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) atomic_store_explicit(&word, i, memory_order_seq_cst);
  return now() - start;
}

// --- hand-over between two threads -----------------------------------------------------------------------------------

static _Atomic uint32_t bell, answer;
static _Atomic int stop_partner;

static void futex(_Atomic uint32_t* address, int op, uint32_t value) {
  syscall(SYS_futex, address, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void* sleeping_partner(void* unused) {
  uint32_t seen = 0;
  for (;;) {
    while (atomic_load(&bell) == seen) futex(&bell, FUTEX_WAIT, seen);
    seen = atomic_load(&bell);
    if (atomic_load(&stop_partner)) return unused;
    atomic_store(&answer, seen);
    futex(&answer, FUTEX_WAKE, 1);
  }
}

static void* spinning_partner(void* unused) {
  uint32_t seen = 0;
  for (;;) {
    while (atomic_load_explicit(&bell, memory_order_acquire) == seen) pause_cpu();
    seen = atomic_load(&bell);
    if (atomic_load(&stop_partner)) return unused;
    atomic_store_explicit(&answer, seen, memory_order_release);
  }
}

static int compare(const void* a, const void* b) {
  uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

// What the waker pays to wake a thread that has slept for `pause_us`: n times the median of n wakes.
uint64_t raw_wake(uint64_t n, uint32_t pause_us) {
  pthread_t thread;
  uint64_t* took = malloc(n * sizeof *took);
  atomic_store(&bell, 0), atomic_store(&answer, 0), atomic_store(&stop_partner, 0);
  pthread_create(&thread, NULL, sleeping_partner, NULL);
  for (uint64_t i = 0; i < n; ++i) {
    usleep(pause_us);
    uint64_t start = now();
    atomic_fetch_add(&bell, 1);
    futex(&bell, FUTEX_WAKE, 1);
    took[i] = now() - start;
  }
  atomic_store(&stop_partner, 1);
  atomic_fetch_add(&bell, 1);
  futex(&bell, FUTEX_WAKE, 1);
  pthread_join(thread, NULL);
  qsort(took, n, sizeof *took, compare);
  uint64_t median = took[n / 2];
  free(took);
  return n * median;
}

// There and back again: two hand-overs each. `spins`: both threads spin; else both sleep in futexes.
uint64_t raw_round_trip(uint64_t n, int spins) {
  pthread_t thread;
  atomic_store(&bell, 0), atomic_store(&answer, 0), atomic_store(&stop_partner, 0);
  pthread_create(&thread, NULL, spins ? spinning_partner : sleeping_partner, NULL);
  usleep(1000);
  uint64_t start = now();
  for (uint32_t i = 1; i <= n; ++i) {
    atomic_store(&bell, i);
    if (!spins) futex(&bell, FUTEX_WAKE, 1);
    for (;;) {
      uint32_t seen = atomic_load_explicit(&answer, memory_order_acquire);
      if (seen == i) break;
      if (spins)
        pause_cpu();
      else
        futex(&answer, FUTEX_WAIT, seen);
    }
  }
  uint64_t took = now() - start;
  atomic_store(&stop_partner, 1);
  atomic_fetch_add(&bell, 1);
  futex(&bell, FUTEX_WAKE, 1);
  pthread_join(thread, NULL);
  return took;
}

// --- memory ----------------------------------------------------------------------------------------------------------

struct piece {
  char* dest;
  const char* src;
  uint64_t size;
};

static void* copy_piece(void* p) {
  const struct piece* piece = p;
  memcpy(piece->dest, piece->src, piece->size);
  return NULL;
}

// The caller's memory, touched before. threads is 1 or 2; the second thread is made for each copy (some 20 us).
uint64_t raw_memcpy(uint64_t n, char* dest, const char* src, uint64_t size, int threads) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) {
    if (threads == 1) {
      memcpy(dest, src, size);
      __asm__ volatile("" ::: "memory");
    } else {
      uint64_t half = size / 2 & ~63ull;
      struct piece rest = {dest + half, src + half, size - half};
      pthread_t thread;
      pthread_create(&thread, NULL, copy_piece, &rest);
      memcpy(dest, src, half);
      pthread_join(thread, NULL);
    }
  }
  return now() - start;
}

uint64_t raw_malloc(uint64_t n, uint64_t size) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) {
    char* volatile p = malloc(size);
    p[0] = 1;
    free(p);
  }
  return now() - start;
}

static void* nothing(void* p) { return p; }

// What opening a device cannot do without: a ring of 2 MiB, touched, and one thread.
uint64_t raw_open(uint64_t n) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) {
    pthread_t thread;
    void* ring = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    munmap(ring, 2 << 20);
  }
  return now() - start;
}

uint64_t raw_read_file(uint64_t n, const char* path, char* into, uint64_t size) {
  uint64_t start = now();
  for (uint64_t i = 0; i < n; ++i) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, into, size) != (ssize_t)size) return 0;
    close(fd);
  }
  return now() - start;
}

// --- kernels, on all cores -------------------------------------------------------------------------------------------

uint64_t raw_triad(uint64_t n, float* restrict a, const float* restrict b, const float* restrict c, float s, uint64_t count) {
  uint64_t start = now();
  for (uint64_t k = 0; k < n; ++k) {
#pragma omp parallel for schedule(static)
    for (uint64_t i = 0; i < count; ++i) a[i] = b[i] + s * c[i];
  }
  return now() - start;
}

// The loops of hcq.ops, over `count` numbers or a matrix of `count` columns and rows; sums in any order. 0: no such.
__attribute__((optimize("fast-math"))) uint64_t raw_operation(uint64_t n, int which, float* restrict out, const float* restrict x,
                                                              const float* restrict y, uint64_t count) {
  uint64_t start = now();
  for (uint64_t k = 0; k < n; ++k) {
    float sum = 0;
    switch (which) {
      case 0:
#pragma omp parallel for schedule(static)
        for (uint64_t i = 0; i < count; ++i) out[i] = 3.0f;
        break;
      case 1:
#pragma omp parallel for schedule(static)
        for (uint64_t i = 0; i < count; ++i) out[i] = x[i] + y[i];
        break;
      case 2:
#pragma omp parallel for schedule(static)
        for (uint64_t i = 0; i < count; ++i) out[i] = expf(x[i]);
        break;
      case 3:
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (uint64_t i = 0; i < count; ++i) sum += x[i];
        out[0] = sum;
        break;
      case 4:
#pragma omp parallel for schedule(static)
        for (uint64_t left = 0; left < count; left += 1024) {
          for (uint64_t i = left; i < left + 1024; ++i) out[i] = 0;
          for (uint64_t row = 0; row < count; ++row)
            for (uint64_t i = left; i < left + 1024; ++i) out[i] += x[row * count + i];
        }
        break;
      default:
        return 0;
    }
  }
  return now() - start;
}

// Sums of blocks of 256, in the order the source says (no fast-math): each a chain of additions.
uint64_t raw_reduce(uint64_t n, float* restrict sums, const float* restrict x, uint64_t blocks) {
  uint64_t start = now();
  for (uint64_t k = 0; k < n; ++k) {
#pragma omp parallel for schedule(static)
    for (uint64_t g = 0; g < blocks; ++g) {
      float sum = 0;
      for (int i = 0; i < 256; ++i) sum += x[g * 256 + i];
      sums[g] = sum;
    }
  }
  return now() - start;
}

// The same as the kernels do it: a local array and halving steps, which vectorise.
uint64_t raw_reduce_tree(uint64_t n, float* restrict sums, const float* restrict x, uint64_t blocks) {
  uint64_t start = now();
  for (uint64_t k = 0; k < n; ++k) {
#pragma omp parallel for schedule(static)
    for (uint64_t g = 0; g < blocks; ++g) {
      float local[256];
      memcpy(local, x + g * 256, sizeof local);
      for (int s = 128; s > 0; s >>= 1)
        for (int i = 0; i < s; ++i) local[i] += local[i + s];
      sums[g] = local[0];
    }
  }
  return now() - start;
}
