// CUB's operations of a block and of a warp: sums, scans, radix sort, run-length decoding's loads and stores.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

extern "C" __global__ void cub_sums(const float* in, float* out, int* warps, int n) {
  using Reduce = cub::BlockReduce<float, 128>;
  using Warp = cub::WarpReduce<int>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ typename Warp::TempStorage of_warps[4];
  int i = blockIdx.x * 128 + threadIdx.x;
  float sum = Reduce(storage).Sum(i < n ? in[i] : 0.0f);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
  int most = Warp(of_warps[threadIdx.x / 32]).Reduce((int)threadIdx.x * 7 % 31, [](int a, int b) { return a > b ? a : b; });
  if (threadIdx.x % 32 == 0) warps[i / 32] = most;
}

extern "C" __global__ void cub_scan(const int* in, int* out, int* totals) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 128, cub::BLOCK_SCAN_RAKING>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } storage;
  int items[4], total;
  Load(storage.load).Load(in + blockIdx.x * 512, items);
  __syncthreads();
  Scan(storage.scan).ExclusiveSum(items, items, total);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * 512, items);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

extern "C" __global__ void cub_sort(float* keys, int* values) {
  using Sort = cub::BlockRadixSort<float, 64, 4, int>;
  __shared__ typename Sort::TempStorage storage;
  float key[4];
  int value[4];
  for (int j = 0; j < 4; j++) {
    key[j] = keys[threadIdx.x * 4 + j];
    value[j] = threadIdx.x * 4 + j;
  }
  Sort(storage).SortDescending(key, value);
  for (int j = 0; j < 4; j++) {
    keys[threadIdx.x * 4 + j] = key[j];
    values[threadIdx.x * 4 + j] = value[j];
  }
}
