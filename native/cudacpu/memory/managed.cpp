// Hints about managed memory: they are kept and told, and change nothing. What does not live here: its allocation.
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "api/entry.hpp"
#include "graph/capture.hpp"
#include "memory/memory.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

struct Hints {
  bool read_mostly = false;
  CUmemLocation preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0}, prefetched = {CU_MEM_LOCATION_TYPE_INVALID, 0};
  std::set<int> accessed_by;  // devices, CU_DEVICE_CPU for the host
};

struct AllHints {
  std::mutex lock;                  // guards the rest; nothing is called under it
  std::map<uint64_t, Hints> hints;  // by Range::id, which is never used twice
};

AllHints& all_hints() {
  static auto* one = new AllHints();  // never destroyed: calls may come until the process is gone
  return *one;
}

CUmemLocation location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// As the first version of the interface tells a location.
int device_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

CUresult check_location(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return find_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  return on_host(location.type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The managed range that all of these bytes are of; null for none.
RangePtr managed(uint64_t at, size_t bytes) {
  RangePtr range = find_range(at);
  return range && bytes && range->memory == Memory::managed && inside(at, bytes, false) ? range : nullptr;
}

CUresult prefetch(uint64_t at, size_t bytes, const CUmemLocation& location, unsigned long long flags, CUstream handle) {
  return with_context([&](Context& context) -> CUresult {
    RangePtr range = managed(at, bytes);
    if (!range || flags) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = check_location(location)) return result;
    std::shared_ptr<Stream> stream;
    if (CUresult result = find_stream(context, handle, &stream)) return result;
    if (is_capturing(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> hold(all_hints().lock);
    all_hints().hints[range->id].prefetched = location;
    return CUDA_SUCCESS;
  });
}

CUresult prefetch_batch(const CUdeviceptr* ats, const size_t* sizes, size_t count, const CUmemLocation* locations,
                        const size_t* firsts, size_t location_count, unsigned long long flags, CUstream stream) {
  if (!ats || !sizes || !count || !locations || !firsts || !location_count || location_count > count || firsts[0]) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 1; i < location_count; i++) {
    if (firsts[i] <= firsts[i - 1] || firsts[i] >= count) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0, which = 0; i < count; i++) {
    if (which + 1 < location_count && firsts[which + 1] == i) which++;
    if (CUresult result = prefetch(ats[i], sizes[i], locations[which], flags, stream)) return result;
  }
  return CUDA_SUCCESS;
}

// What is discarded may have any content afterwards; it keeps what it has.
CUresult discard_batch(const CUdeviceptr* ats, const size_t* sizes, size_t count, unsigned long long flags,
                       CUstream stream) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Stream> found;
    if (CUresult result = find_stream(context, stream, &found)) return result;
    if (!ats || !sizes || !count || flags) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
      if (!managed(ats[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult attach(CUstream stream, uint64_t at, size_t bytes, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Stream> found;
    if (CUresult result = find_stream(context, stream, &found)) return result;
    RangePtr range = find_range(at);
    bool whole = range && range->base == at && (bytes == 0 || bytes == range->bytes);
    bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    return whole && range->memory == Memory::managed && known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult tell(const Hints& hints, CUmem_range_attribute which, void* out, size_t bytes) {
  if (which == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    if (!bytes || bytes % sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
    auto next = hints.accessed_by.begin();
    for (size_t i = 0; i < bytes / sizeof(int); i++) {
      int device = next == hints.accessed_by.end() ? CU_DEVICE_INVALID : *next++;
      std::memcpy(static_cast<char*>(out) + i * sizeof device, &device, sizeof device);
    }
    return CUDA_SUCCESS;
  }
  int value;
  switch (which) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = hints.read_mostly;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = device_of(hints.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = device_of(hints.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = hints.preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = hints.preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = hints.prefetched.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = hints.prefetched.id;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  return give(out, value);
}

}  // namespace

HCQ_API cuMemAdvise_v2(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  return with_context([&](Context&) -> CUresult {
    RangePtr range = managed(at, bytes);
    if (!range) return CUDA_ERROR_INVALID_VALUE;
    bool with_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (CUresult result = with_place ? check_location(location) : CUDA_SUCCESS) return result;
    std::lock_guard<std::mutex> hold(all_hints().lock);
    Hints& hints = all_hints().hints[range->id];
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
        hints.read_mostly = true;
        break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        hints.read_mostly = false;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        hints.preferred = location;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        hints.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        hints.accessed_by.insert(device_of(location));
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        hints.accessed_by.erase(device_of(location));
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemAdvise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device) {
  return cuMemAdvise_v2(at, bytes, advice, location_of(device));
}

HCQ_API cuMemRangeGetAttributes(void** outs, size_t* sizes, CUmem_range_attribute* which, size_t count, CUdeviceptr at,
                                size_t bytes) {
  return with_context([&](Context&) -> CUresult {
    RangePtr range = managed(at, bytes);
    if (!outs || !sizes || !which || !count || !range) return CUDA_ERROR_INVALID_VALUE;
    Hints hints;
    {
      std::lock_guard<std::mutex> hold(all_hints().lock);
      hints = all_hints().hints[range->id];
    }
    for (size_t i = 0; i < count; i++) {
      CUresult result = outs[i] ? tell(hints, which[i], outs[i], sizes[i]) : CUDA_ERROR_INVALID_VALUE;
      if (result) return result;
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemRangeGetAttribute(void* out, size_t size, CUmem_range_attribute which, CUdeviceptr at, size_t bytes) {
  return cuMemRangeGetAttributes(&out, &size, &which, 1, at, bytes);
}

HCQ_API cuMemPrefetchAsync(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(at, bytes, location_of(device), 0, stream);
}
HCQ_API cuMemPrefetchAsync_ptsz(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(at, bytes, location_of(device), 0, ptsz(stream));
}
HCQ_API cuMemPrefetchAsync_v2(CUdeviceptr at, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream) {
  return prefetch(at, bytes, location, flags, stream);
}
HCQ_API cuMemPrefetchAsync_v2_ptsz(CUdeviceptr at, size_t bytes, CUmemLocation location, unsigned flags,
                                   CUstream stream) {
  return prefetch(at, bytes, location, flags, ptsz(stream));
}
HCQ_API cuMemPrefetchBatchAsync(CUdeviceptr* ats, size_t* sizes, size_t count, CUmemLocation* locations, size_t* firsts,
                                size_t location_count, unsigned long long flags, CUstream stream) {
  return prefetch_batch(ats, sizes, count, locations, firsts, location_count, flags, stream);
}
HCQ_API cuMemPrefetchBatchAsync_ptsz(CUdeviceptr* ats, size_t* sizes, size_t count, CUmemLocation* locations,
                                     size_t* firsts, size_t location_count, unsigned long long flags, CUstream stream) {
  return prefetch_batch(ats, sizes, count, locations, firsts, location_count, flags, ptsz(stream));
}
HCQ_API cuMemDiscardBatchAsync(CUdeviceptr* ats, size_t* sizes, size_t count, unsigned long long flags,
                               CUstream stream) {
  return discard_batch(ats, sizes, count, flags, stream);
}
HCQ_API cuMemDiscardBatchAsync_ptsz(CUdeviceptr* ats, size_t* sizes, size_t count, unsigned long long flags,
                                    CUstream stream) {
  return discard_batch(ats, sizes, count, flags, ptsz(stream));
}
HCQ_API cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* ats, size_t* sizes, size_t count, CUmemLocation* locations,
                                          size_t* firsts, size_t location_count, unsigned long long flags,
                                          CUstream stream) {
  CUresult result = discard_batch(ats, sizes, count, flags, stream);
  return result ? result : prefetch_batch(ats, sizes, count, locations, firsts, location_count, flags, stream);
}
HCQ_API cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr* ats, size_t* sizes, size_t count, CUmemLocation* locations,
                                               size_t* firsts, size_t location_count, unsigned long long flags,
                                               CUstream stream) {
  CUresult result = discard_batch(ats, sizes, count, flags, ptsz(stream));
  return result ? result : prefetch_batch(ats, sizes, count, locations, firsts, location_count, flags, ptsz(stream));
}
HCQ_API cuStreamAttachMemAsync(CUstream stream, CUdeviceptr at, size_t bytes, unsigned flags) {
  return attach(stream, at, bytes, flags);
}
HCQ_API cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr at, size_t bytes, unsigned flags) {
  return attach(ptsz(stream), at, bytes, flags);
}

}  // namespace cudacpu
