// The API's entries for pools and for allocation in stream order. What does not live here: pools themselves (pool.cpp).
#include <cstring>

#include "api/entry.hpp"
#include "api/handle.hpp"
#include "device/lacks.hpp"
#include "graph/capture.hpp"
#include "graph/graph_memory.hpp"
#include "memory/pool.hpp"

namespace cudacpu {

HCQ_API cuMemFree_v2(CUdeviceptr at);  // memory_api.cpp

namespace {

// Runs `body(pool)` for a handle of a pool.
template <class F>
CUresult with_pool(CUmemoryPool handle, F&& body) {
  return with_init([&]() -> CUresult {
    PoolPtr pool = handles<Pool>().share(handle);
    return pool ? body(pool) : CUDA_ERROR_INVALID_VALUE;
  });
}

// Runs `body(device)` for a location that is a device's, and one of null for the host's and for managed memory.
template <class F>
CUresult with_location(const CUmemLocation* location, CUmemAllocationType type, F&& body) {
  return with_init([&]() -> CUresult {
    if (!location) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return body(nullptr);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (on_host(location->type)) return body(nullptr);
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    Device* device = find_device(location->id);
    return device ? body(device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult allocate(CUdeviceptr* out, size_t bytes, const PoolPtr& pool, CUstream handle, Context& context) {
  if (lacks(Lack::pools)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (CUresult result = find_stream(context, handle, &stream)) return result;
  if (!bytes) return *out = 0, CUDA_SUCCESS;
  if (is_capturing(*stream)) {  // the graph has memory of its own, whichever pool it was to come from
    return pool->device ? capture_alloc(*stream, *pool->device, bytes, out) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return pool->allocate(stream, bytes, out);
}

CUresult get(Pool& pool, CUmemPool_attribute which, void* out) {
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return give<int>(out, pool.reuse[which - 1].load(std::memory_order_relaxed));
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return give<cuuint64_t>(out, pool.threshold.load(std::memory_order_relaxed));
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return give<cuuint64_t>(out, pool.use().reserved);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return give<cuuint64_t>(out, pool.use().reserved_high);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return give<cuuint64_t>(out, pool.use().used);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return give<cuuint64_t>(out, pool.use().used_high);
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
      return give<int>(out, pool.props.allocType);
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
      return give<int>(out, pool.props.handleTypes);
    case CU_MEMPOOL_ATTR_LOCATION_ID:
      return give<int>(out, pool.props.location.id);
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
      return give<int>(out, pool.props.location.type);
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      return give<cuuint64_t>(out, pool.props.maxSize);
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
      return give<int>(out, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set(Pool& pool, CUmemPool_attribute which, const void* value) {
  int flag;
  cuuint64_t number;
  switch (which) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&flag, value, sizeof flag);
      pool.reuse[which - 1].store(flag != 0, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&number, value, sizeof number);
      pool.threshold.store(number, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      std::memcpy(&number, value, sizeof number);
      if (number) return CUDA_ERROR_INVALID_VALUE;  // it can only be set back
      pool.reset_high(which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, which == CU_MEMPOOL_ATTR_USED_MEM_HIGH);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

HCQ_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  return with_init([&]() -> CUresult {
    if (lacks(Lack::pools)) return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || !props) return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (props->handleTypes || props->usage) return CUDA_ERROR_NOT_SUPPORTED;
    Device* device = nullptr;
    if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      device = find_device(props->location.id);
      if (!device) return CUDA_ERROR_INVALID_DEVICE;
    } else if (!on_host(props->location.type) && props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = Pool::make(*props, device)->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemPoolDestroy(CUmemoryPool handle) {
  return with_pool(handle, [&](const PoolPtr& pool) {
    if (pool->device && pool == default_pool(*pool->device)) return CUDA_ERROR_INVALID_VALUE;
    if (pool == common_pool(false) || pool == common_pool(true)) return CUDA_ERROR_INVALID_VALUE;
    if (!handles<Pool>().remove(handle)) return CUDA_ERROR_INVALID_VALUE;
    forget_pool(pool);  // what is allocated from it keeps it until that is freed
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  return with_pool(handle, [&](const PoolPtr& pool) { return pool->trim(keep_bytes), CUDA_SUCCESS; });
}

HCQ_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* out) {
  return with_pool(handle,
                   [&](const PoolPtr& pool) { return out ? get(*pool, which, out) : CUDA_ERROR_INVALID_VALUE; });
}

HCQ_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return with_pool(handle,
                   [&](const PoolPtr& pool) { return value ? set(*pool, which, value) : CUDA_ERROR_INVALID_VALUE; });
}

HCQ_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  return with_pool(handle, [&](const PoolPtr& pool) {
    if (!map && count) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
      bool known = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                   map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      Device* device = map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? find_device(map[i].location.id) : nullptr;
      if (!known || (!device && !on_host(map[i].location.type))) return CUDA_ERROR_INVALID_VALUE;
      // A device keeps access to its own memory.
      if (device && device == pool->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      bool other = device && pool->device && device != pool->device;
      if (other && !peers() && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    for (size_t i = 0; i < count; i++) {
      if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
      pool->access[map[i].location.id].store(map[i].flags, std::memory_order_relaxed);  // only told
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  return with_pool(handle, [&](const PoolPtr& pool) {
    if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
    if (on_host(location->type)) {
      *flags = pool->device ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      return CUDA_SUCCESS;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !find_device(location->id)) return CUDA_ERROR_INVALID_VALUE;
    *flags = static_cast<CUmemAccess_flags>(pool->access[location->id].load(std::memory_order_relaxed));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  return with_location(location, type, [&](Device* device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (device ? default_pool(*device) : common_pool(type == CU_MEM_ALLOCATION_TYPE_MANAGED))->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  return with_location(location, type, [&](Device* device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (device ? current_pool(*device) : common_pool(type == CU_MEM_ALLOCATION_TYPE_MANAGED))->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  return with_location(location, type, [&](Device* device) {
    if (!device) return CUDA_ERROR_NOT_SUPPORTED;  // only devices have more than one
    return with_pool(handle, [&](const PoolPtr& pool) {
      if (pool->device != device) return CUDA_ERROR_INVALID_VALUE;
      return set_current_pool(*device, pool), CUDA_SUCCESS;
    });
  });
}

HCQ_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemGetDefaultMemPool(out, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

HCQ_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemGetMemPool(out, &location, CU_MEM_ALLOCATION_TYPE_PINNED);
}

HCQ_API cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

HCQ_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return with_context(
      [&](Context& context) { return allocate(out, bytes, current_pool(context.device), stream, context); });
}

HCQ_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool handle, CUstream stream) {
  return with_context([&](Context& context) -> CUresult {
    PoolPtr pool = handles<Pool>().share(handle);
    return pool ? allocate(out, bytes, pool, stream, context) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuMemFreeAsync(CUdeviceptr at, CUstream handle) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    if (CUresult result = find_stream(context, handle, &stream)) return result;
    if (!at) return CUDA_SUCCESS;
    bool done;
    CUresult result = free_graph_memory(stream, at, &done);
    if (done) return result;
    if (is_capturing(*stream)) return CUDA_ERROR_INVALID_VALUE;  // a graph can't free what is no graph's
    RangePtr range = find_range(at);
    if (!range || range->base != at) return CUDA_ERROR_INVALID_VALUE;
    if (!range->pool) {  // cuMemAlloc's may be freed so, too
      result = synchronize(stream);
      return result ? result : cuMemFree_v2(at);
    }
    range = remove_range(at);
    return range ? range->pool->free(stream, range) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return cuMemAllocAsync(out, bytes, ptsz(stream));
}
HCQ_API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return cuMemAllocFromPoolAsync(out, bytes, pool, ptsz(stream));
}
HCQ_API cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream) { return cuMemFreeAsync(at, ptsz(stream)); }

}  // namespace cudacpu
