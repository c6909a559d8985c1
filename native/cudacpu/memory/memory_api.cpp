// The API's entries that allocate and free. What does not live here: pools (pool.cpp), what a pointer is (pointer.cpp).
#include "api/entry.hpp"
#include "device/lacks.hpp"
#include "graph/capture.hpp"
#include "graph/graph_memory.hpp"
#include "memory/arena.hpp"
#include "memory/memory.hpp"
#include "memory/pool.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

constexpr size_t pitch_unit = 512;

Arena& host_arena() {
  static auto* one = new Arena(nullptr, false, checking());  // never destroyed: its memory may be in use at exit
  return *one;
}

CUresult allocate(Context& context, Memory memory, size_t bytes, unsigned flags, uint64_t* out) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = check_unsafe()) return result;
  Arena& arena = memory == Memory::host ? host_arena() : context.device.arena;
  uint64_t base = arena.allocate(bytes);
  if (!base) {
    empty_pools();
    base = arena.allocate(bytes);
  }
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range =
      std::make_shared<Range>(base, bytes, memory, &context, memory == Memory::host ? nullptr : &context.device);
  range->flags = flags;
  range->release = [&arena, base] { arena.release(base); };
  add_range(range);
  *out = base;
  return CUDA_SUCCESS;
}

// Frees the range that begins there, once what its context does is done.
template <class F>
CUresult free_range(uint64_t base, F&& fits) {
  RangePtr range = find_range(base);
  if (!range || range->base != base || !fits(*range)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = check_unsafe()) return result;
  if (CUresult result = synchronize(*range->context)) return result;
  range = remove_range(base);
  if (!range) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
  if (range->release) range->release();
  return CUDA_SUCCESS;
}

// What a context allocated goes with it.
const bool hooked = [] {
  reset_hooks().push_back([](Context& context) {
    for (const RangePtr& range : ranges_of(context)) {
      if (range->pool || range->memory == Memory::global) continue;  // their owners' to free
      RangePtr removed = remove_range(range->base);
      if (removed && removed->release) removed->release();
    }
  });
  return true;
}();

}  // namespace

HCQ_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Context& context) {
    if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
    *total = context.device.memory_bytes;
    *free = *total - context.device.used.load(std::memory_order_relaxed);  // a count only
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return with_context([&](Context& context) {
    uint64_t at = 0;
    CUresult result = out ? allocate(context, Memory::device, bytes, 0, &at) : CUDA_ERROR_INVALID_VALUE;
    if (!result) *out = at;
    return result;
  });
}

HCQ_API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned element_bytes) {
  if (!pitch || !width || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t bytes;
  if (width > SIZE_MAX - pitch_unit) return CUDA_ERROR_INVALID_VALUE;
  size_t row = (width + pitch_unit - 1) / pitch_unit * pitch_unit;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = cuMemAlloc_v2(out, bytes);
  if (!result) *pitch = row;
  return result;
}

HCQ_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  return with_context([&](Context& context) {
    if (!out || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
    uint64_t at = 0;
    CUresult result = allocate(context, Memory::managed, bytes, flags, &at);
    if (!result) *out = at;
    return result;
  });
}

HCQ_API cuMemFree_v2(CUdeviceptr at) {
  return with_context([&](Context&) -> CUresult {
    if (!at) return CUDA_SUCCESS;
    bool done;
    CUresult result = free_graph_memory(at, &done);
    if (done) return result;
    return free_range(at, [](const Range& range) {
      return range.memory == Memory::device || range.memory == Memory::managed || range.pool;
    });
  });
}

HCQ_API cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return with_context([&](Context& context) {
    constexpr unsigned known = 7;  // portable, device map, write-combined: all the same here
    if (!out || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
    uint64_t at = 0;
    CUresult result = allocate(context, Memory::host, bytes, flags, &at);
    if (!result) *out = reinterpret_cast<void*>(at);
    return result;
  });
}

HCQ_API cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }

HCQ_API cuMemFreeHost(void* at) {
  return with_context([&](Context&) {
    if (!at) return CUDA_SUCCESS;
    return free_range(reinterpret_cast<uint64_t>(at),
                      [](const Range& range) { return range.memory == Memory::host && !range.pool; });
  });
}

HCQ_API cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    constexpr unsigned known = 15;  // portable, device map, I/O memory, read-only
    if (!at || !bytes || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
    if (lacks(Lack::registering)) return CUDA_ERROR_NOT_SUPPORTED;
    if (CUresult result = check_unsafe()) return result;
    auto range = std::make_shared<Range>(reinterpret_cast<uint64_t>(at), bytes, Memory::registered, &context, nullptr);
    range->flags = flags;
    return add_range(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

HCQ_API cuMemHostUnregister(void* at) {
  return with_context([&](Context&) {
    CUresult result = free_range(reinterpret_cast<uint64_t>(at),
                                 [](const Range& range) { return range.memory == Memory::registered; });
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : result;
  });
}

HCQ_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* at, unsigned flags) {
  return with_context([&](Context&) {
    RangePtr range = find_range(reinterpret_cast<uint64_t>(at));
    if (!out || flags || !range || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<uint64_t>(at);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemHostGetFlags(unsigned* flags, void* at) {
  return with_context([&](Context&) {
    RangePtr range = find_range(reinterpret_cast<uint64_t>(at));
    if (!flags || !range || range->memory != Memory::host) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->flags | 2;  // with unified addresses all of it is mapped
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr at) {
  return with_context([&](Context&) {
    RangePtr range = find_range(at);
    if (!range) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = range->base;
    if (bytes) *bytes = range->bytes;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
