// What the language has: functions that are called, recursion, function pointers, virtual functions, templates, local
// arrays, structures by value, variables of the device, constant memory, dynamic shared memory, printf, assertions.

__device__ __noinline__ int gcd(int a, int b) {
  while (b) {
    int t = a % b;
    a = b;
    b = t;
  }
  return a;
}

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void calls(const int* a, const int* b, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[3 * i] = gcd(a[i], b[i]);
  out[3 * i + 1] = fibonacci(i % 15);
  out[3 * i + 2] = ackermann(2, i % 5);
}

typedef float (*Function)(float, float);
__device__ __noinline__ float add(float a, float b) { return a + b; }
__device__ __noinline__ float times(float a, float b) { return a * b; }
__device__ __noinline__ float less(float a, float b) { return a - b; }
__device__ Function table[3] = {add, times, less};

struct Shape {
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Triangle : Shape {
  float base, height;
  __device__ Triangle(float b, float h) : base(b), height(h) {}
  __device__ float area() const override { return base * height / 2; }
};

extern "C" __global__ void pointers(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[2 * i] = table[i % 3](a[i], b[i]);
  Square square(a[i]);
  Triangle triangle(a[i], b[i]);
  const Shape* shape = i & 1 ? (const Shape*)&triangle : &square;
  out[2 * i + 1] = shape->area();
}

struct Settings {
  double scale;
  int offset;
  char flags[5];
  short steps[3];
};

extern "C" __global__ void structures(Settings s, const int* in, double* out, int n, char letter, bool up, short small) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int at = in[i] % 3;
  out[i] = s.scale * in[i] + s.offset + s.flags[in[i] % 5] * s.steps[at] + letter + (up ? 1000 : 0) + small;
}

__device__ int counter = 100;
__device__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};
__constant__ double factors[3] = {1.0, 10.0, 100.0};
__device__ long long written[8];
__constant__ int chosen;

extern "C" __global__ void variables(const float* in, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = in[i] * weights[i % 4] * factors[i % 3] + chosen;
  atomicAdd(&counter, 1);
  if (i < 8) written[i] = -(long long)i * 10000000000ll;
}

// A stack in local memory, with indices that nobody knows before; a permutation by its number.
extern "C" __global__ void permutations(const int* numbers, unsigned char* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned char left[8];
  int number = numbers[i], factorial = 5040;
  for (int j = 0; j < 8; j++) left[j] = j;
  for (int j = 0; j < 8; j++) {
    int pick = number / factorial;
    number %= factorial;
    if (j < 7) factorial /= 7 - j;
    out[8 * i + j] = left[pick];
    for (int k = pick; k < 7; k++) left[k] = left[k + 1];
  }
}

// Dynamic shared memory, cut by hand into parts of several types.
extern "C" __global__ void parts(const int* in, double* out, int n) {
  extern __shared__ __align__(16) unsigned char memory[];
  double* doubles = (double*)memory;
  int* ints = (int*)(doubles + n);
  short* shorts = (short*)(ints + n);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    doubles[i] = in[i] * 0.5;
    ints[i] = in[i] * 3;
    shorts[i] = (short)in[i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = doubles[n - 1 - i] + ints[(i + 1) % n] + shorts[i];
}

extern "C" __global__ void prints(float x, const char* name) {
  if (threadIdx.x == 0) printf("%s has %d threads, %5.2f and %lld, %u, %c, %%, %08x\n", name, blockDim.x, x,
                               -1234567890123ll, 4000000000u, 'z', 0xbeef);
  if (threadIdx.x == 1) printf("nothing to add\n");
  if (threadIdx.x == 2) printf("%e %g %-6d| %+d %p\n", 1234.5, 0.25, 42, 7, (void*)0x1000);
}

template <int N, typename T>
struct Power {
  static __device__ T of(T x) { return x * Power<N - 1, T>::of(x); }
};
template <typename T>
struct Power<0, T> {
  static __device__ T of(T) { return T(1); }
};

template <typename T, int N, typename... More>
__global__ void powers(const T* in, T* out, int n, More... more) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Power<N, T>::of(in[i]) + (T(0) + ... + T(more));
}

extern "C" __global__ void asserts(const int* in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (in[i] < 0) __trap();
}

extern "C" __global__ void heap(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int* list = (int*)malloc((i + 1) * sizeof(int));
  if (!list) return;
  for (int j = 0; j <= i; j++) list[j] = j * i;
  int sum = 0;
  for (int j = 0; j <= i; j++) sum += list[j];
  out[i] = sum;
  free(list);
}
