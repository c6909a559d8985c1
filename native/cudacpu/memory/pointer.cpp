// What the API tells of an address. What does not live here: the ranges (memory.cpp).
#include <cstring>

#include "api/entry.hpp"
#include "memory/memory.hpp"
#include "memory/pool.hpp"

namespace cudacpu {
namespace {

// What is told of an address that is none of ours.
CUresult attribute_of_unknown(CUpointer_attribute which, void* out) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give<void*>(out, nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(out, CU_DEVICE_INVALID);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give<unsigned long long>(out, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return give<unsigned __int128>(out, 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give<char>(out, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult attribute(const Range& range, uint64_t address, CUpointer_attribute which, void* out) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(out, range.context ? range.context->handle : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(out, range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give<CUdeviceptr>(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.on_host() && range.memory != Memory::managed) return CUDA_ERROR_INVALID_VALUE;
      return give<uint64_t>(out, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give<unsigned>(out, static_cast<unsigned>(range.sync_memops.load(std::memory_order_relaxed)));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give<unsigned long long>(out, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give<char>(out, range.memory == Memory::managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(out, range.device    ? range.device->ordinal
                            : range.context ? range.context->device.ordinal
                                            : CU_DEVICE_CPU);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give<char>(out, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give<CUdeviceptr>(out, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give<size_t>(out, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give<char>(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give<unsigned long long>(out, range.handle_types);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give<unsigned>(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      if (!range.pool) return CUDA_ERROR_INVALID_VALUE;
      return give(out, range.pool->handle);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

HCQ_API cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr address) {
  return with_init([&]() -> CUresult {
    RangePtr range = find_range(address);
    return out && range ? attribute(*range, address, which, out) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** out, CUdeviceptr address) {
  return with_init([&]() -> CUresult {
    if (!count || !which || !out) return CUDA_ERROR_INVALID_VALUE;
    RangePtr range = find_range(address);
    for (unsigned i = 0; i < count; i++) {
      if (!out[i]) return CUDA_ERROR_INVALID_VALUE;
      // What can't be told of this address is told as of none.
      if (range && !attribute(*range, address, which[i], out[i])) continue;
      if (CUresult result = attribute_of_unknown(which[i], out[i])) return result;
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address) {
  return with_init([&]() -> CUresult {
    RangePtr range = find_range(address);
    if (!value || !range || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    unsigned on;
    std::memcpy(&on, value, sizeof on);
    range->sync_memops.store(on != 0, std::memory_order_relaxed);  // only told
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
