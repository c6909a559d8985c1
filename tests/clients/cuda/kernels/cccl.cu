// The toolkit's own libraries: blocks and warps of CUB, libcu++'s atomics, barriers, pipelines, and its standard library.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/span>
#include <cuda/std/tuple>

#define THREADS 128
#define ITEMS 4

// 512 numbers a block: loaded and turned, sorted with their places, marked where they change, added up.
extern "C" __global__ void cub_chain(const int* in, int* sorted, int* places, int* heads, int* sums, int* differences) {
  using Load = cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, THREADS, ITEMS, int>;
  using Change = cub::BlockDiscontinuity<int, THREADS>;
  using Scan = cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
  using Difference = cub::BlockAdjacentDifference<int, THREADS>;
  using Store = cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Sort::TempStorage sort;
    typename Change::TempStorage change;
    typename Scan::TempStorage scan;
    typename Difference::TempStorage difference;
    typename Store::TempStorage store;
  } room;
  int base = blockIdx.x * THREADS * ITEMS, keys[ITEMS], values[ITEMS], flags[ITEMS], less[ITEMS];
  auto put = [&](int* to, const int (&items)[ITEMS]) {
    int moved[ITEMS];  // a store leaves its items in another order
    for (int i = 0; i < ITEMS; i++) moved[i] = items[i];
    __syncthreads();
    Store(room.store).Store(to + base, moved);
    __syncthreads();
  };
  Load(room.load).Load(in + base, keys);
  for (int i = 0; i < ITEMS; i++) values[i] = threadIdx.x * ITEMS + i;
  __syncthreads();
  Sort(room.sort).Sort(keys, values);
  put(sorted, keys);
  Store(room.store).Store(places + base, values);
  __syncthreads();
  Change(room.change).FlagHeads(flags, keys, cuda::std::not_equal_to<>{});
  put(heads, flags);
  Scan(room.scan).InclusiveSum(flags, flags);
  put(sums, flags);
  Difference(room.difference).SubtractLeft(keys, less, [](int a, int b) { return a - b; });
  put(differences, less);
}

struct Down {
  __device__ bool operator()(double a, double b) const { return a > b; }
};

extern "C" __global__ void cub_more(const double* in, double* down, unsigned char* bytes, unsigned* histogram, float* tops,
                                    int* decoded) {
  using Sort = cub::BlockMergeSort<double, THREADS, 2>;
  using Histogram = cub::BlockHistogram<unsigned char, THREADS, 4, 256, cub::BLOCK_HISTO_SORT>;
  using Top = cub::BlockReduce<float, THREADS, cub::BLOCK_REDUCE_RAKING>;
  using Warp = cub::WarpScan<float>;
  using Decode = cub::BlockRunLengthDecode<int, THREADS, 1, 4>;
  __shared__ typename Sort::TempStorage sort;
  __shared__ typename Histogram::TempStorage counting;
  __shared__ typename Top::TempStorage top;
  __shared__ typename Warp::TempStorage warps[THREADS / 32];
  __shared__ typename Decode::TempStorage runs;
  __shared__ unsigned counts[256];
  int t = threadIdx.x;
  double two[2] = {in[2 * t], in[2 * t + 1]};
  Sort(sort).Sort(two, Down());
  down[2 * t] = two[0], down[2 * t + 1] = two[1];
  unsigned char four[4];
  for (int i = 0; i < 4; i++) four[i] = bytes[4 * t + i];
  Histogram(counting).Histogram(four, counts);
  __syncthreads();
  for (int i = t; i < 256; i += THREADS) histogram[i] = counts[i];
  float sum, most = Top(top).Reduce((float)two[0], cuda::maximum<>{});
  Warp(warps[t / 32]).InclusiveSum((float)t, sum);
  if (t == 0) tops[0] = most;
  tops[1 + t] = sum;
  int item[1] = {t}, length[1] = {t % 3 + 1}, total = 0, out[4];
  Decode decode(runs, item, length, total);
  for (int base = 0; base < total; base += 4 * THREADS) {
    decode.RunLengthDecode(out, base);
    for (int i = 0; i < 4; i++)
      if (base + 4 * t + i < total) decoded[base + 4 * t + i] = out[i];
    __syncthreads();
  }
}

// What hosts' programs use, on the device.
extern "C" __global__ void standard(const float* in, double* out, unsigned long long* ticket, int n) {
  cuda::std::span<const float> all(in, n);
  cuda::std::array<double, 4> sums{};
  for (float each : all.subspan(threadIdx.x)) sums[cuda::std::popcount((unsigned)each) % 4] += each;
  cuda::std::complex<double> z(sums[0] + 1.0, sums[1]), w = cuda::std::exp(cuda::std::complex<double>(0.0, 1.0)) * z;
  cuda::std::optional<double> some;
  if (threadIdx.x % 2) some = sums[2];
  auto [a, b] = cuda::std::make_tuple(w.real(), cuda::std::abs(w));
  cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> next(*ticket);
  unsigned long long place = next.fetch_add(3, cuda::std::memory_order_acq_rel);
  cuda::atomic_ref<double, cuda::thread_scope_block> total(out[4]);
  total.fetch_add(some.value_or(0.5));
  if (threadIdx.x == 0) out[0] = a, out[1] = b, out[2] = cuda::std::numeric_limits<float>::max(), out[3] = sums[3];
  out[5 + threadIdx.x] = (double)(place % 3) + cuda::std::bit_width((unsigned)threadIdx.x);
}
