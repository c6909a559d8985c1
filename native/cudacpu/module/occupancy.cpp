// cuOccupancy*: how many blocks would fit, by the figures that the device shows. Nothing here depends on it but the
// size of cooperative launches.
#include <algorithm>

#include "api/api_launch.hpp"
#include "api/entry.hpp"
#include "module/function.hpp"

namespace cudacpu {

namespace {

constexpr int kWarp = 32;

int shared_per_multiprocessor(const Device& device) {
  return limit(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
}

int reserved(const Device& device) { return limit(device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK); }

// As with_function(), where there is a context.
template <class F>
CUresult in_context(CUfunction handle, F&& body) {
  return with_context([&](Context&) { return with_function(handle, body); });
}

CUresult potential(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of, size_t dynamic, int most) {
  return in_context(handle, [&](Function& f) -> CUresult {
    if (!grid || !block || most < 0) return CUDA_ERROR_INVALID_VALUE;
    const Device& device = f.context->device;
    int limit_threads = limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (f.kernel->max_threads) limit_threads = std::min(limit_threads, static_cast<int>(f.kernel->max_threads));
    if (most) limit_threads = std::min(limit_threads, most);
    int best = 0, best_block = limit_threads, best_blocks = 0;
    for (int threads = limit_threads; threads > 0; threads = (threads - 1) / kWarp * kWarp) {
      int blocks = resident_blocks(*f.kernel, device, threads, shared_of ? shared_of(threads) : dynamic);
      if (blocks * threads <= best) continue;
      best = blocks * threads;
      best_block = threads;
      best_blocks = blocks;
    }
    *block = best_block;
    *grid = best_blocks * limit(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
  });
}

CUresult active(int* blocks, CUfunction handle, int threads, size_t dynamic) {
  return in_context(handle, [&](Function& f) -> CUresult {
    if (!blocks || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = resident_blocks(*f.kernel, f.context->device, threads, dynamic);
    return CUDA_SUCCESS;
  });
}

}  // namespace

int resident_blocks(const Kernel& kernel, const Device& device, int threads, size_t dynamic_shared) {
  if (threads > limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return 0;
  if (kernel.max_threads && threads > static_cast<int>(kernel.max_threads)) return 0;
  int rounded = (threads + kWarp - 1) / kWarp * kWarp;
  int blocks = std::min(limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / rounded,
                        limit(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  int registers = limit(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  if (kernel.registers) blocks = std::min(blocks, registers / (static_cast<int>(kernel.registers) * rounded));
  size_t shared = kernel.code.shared + dynamic_shared + static_cast<size_t>(reserved(device));
  return std::min(
      blocks, static_cast<int>(static_cast<size_t>(shared_per_multiprocessor(device)) / std::max<size_t>(shared, 1)));
}

HCQ_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t dynamic) {
  return active(blocks, function, threads, dynamic);
}

HCQ_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                             size_t dynamic, unsigned) {
  return active(blocks, function, threads, dynamic);
}

HCQ_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of,
                                         size_t dynamic, int most) {
  return potential(grid, block, function, shared_of, dynamic, most);
}

HCQ_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                  CUoccupancyB2DSize shared_of, size_t dynamic, int most, unsigned) {
  return potential(grid, block, function, shared_of, dynamic, most);
}

HCQ_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
  return in_context(handle, [&](Function& f) -> CUresult {
    const Device& device = f.context->device;
    if (!bytes || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (resident_blocks(*f.kernel, device, threads, 0) < blocks) return CUDA_ERROR_INVALID_VALUE;
    int taken = static_cast<int>(f.kernel->code.shared);
    int each = shared_per_multiprocessor(device) / blocks - reserved(device) - taken;
    int most = limit(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - taken;
    *bytes = static_cast<size_t>(std::max(0, std::min(each, most)) / 128 * 128);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle, const CUlaunchConfig* config) {
  return in_context(handle, [&](Function&) -> CUresult {
    if (!size || !config) return CUDA_ERROR_INVALID_VALUE;
    *size = 1;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return in_context(handle, [&](Function& f) -> CUresult {
    if (!clusters || !config) return CUDA_ERROR_INVALID_VALUE;
    const Device& device = f.context->device;
    int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
    *clusters = resident_blocks(*f.kernel, device, threads, config->sharedMemBytes) *
                limit(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
