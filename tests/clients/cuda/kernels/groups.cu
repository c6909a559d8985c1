// The header of collective operations of cooperative groups: reduce and scans of tiles and of those who came together.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void collectives(const int* in, int* sums, int* tops, int* before, float* means) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, value = in[i];
  sums[i] = cg::reduce(tile, value, cg::plus<int>());
  tops[i] = cg::reduce(tile, value, cg::greater<int>());
  before[i] = cg::exclusive_scan(tile, value);
  means[i] = cg::reduce(tile, (float)value, cg::plus<float>()) / tile.size();
}

extern "C" __global__ void some_threads(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || in[i] % 3) return;
  auto came = cg::coalesced_threads();
  out[i] = cg::reduce(came, in[i], cg::plus<int>());
}
