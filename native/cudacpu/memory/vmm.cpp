// Virtual memory: addresses, memory, and which memory is at which addresses. What does not live here: memory that comes
// with its addresses (memory_api.cpp).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "api/entry.hpp"
#include "memory/memory.hpp"

namespace cudacpu {
namespace {

constexpr size_t granularity = 2 << 20;

// Memory without an address: a file without a name, so that it can be at several addresses, and go to other processes.
struct Physical {
  CUmemAllocationProp props;
  Device* device;  // null: the host's
  size_t bytes;
  int file;
  int handles = 1;  // that the user holds; the ranges where it is mapped keep the object by themselves

  Physical(const CUmemAllocationProp& props, Device* device, size_t bytes, int file)
      : props(props), device(device), bytes(bytes), file(file) {}
  ~Physical() {
    close(file);
    if (device) device->give(bytes);
  }
};

using PhysicalPtr = std::shared_ptr<Physical>;

struct Mapping {
  size_t bytes;
  PhysicalPtr memory;
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
};

struct Virtual {
  std::mutex lock;  // guards all that follows; of others' locks only the registry's is taken under it
  std::map<uint64_t, size_t> reserved;
  std::map<uint64_t, Mapping> mapped;
  std::map<CUmemGenericAllocationHandle, PhysicalPtr> handles;
  CUmemGenericAllocationHandle next = 0x1000;
};

Virtual& all() {
  static auto* one = new Virtual();  // never destroyed: its memory may be in use at exit
  return *one;
}

// The entry that all of these bytes lie in; end() for none.
template <class Map, class Bytes>
typename Map::iterator around(Map& map, uint64_t at, size_t bytes, Bytes&& size_of) {
  auto found = map.upper_bound(at);
  if (found == map.begin()) return map.end();
  found--;
  uint64_t offset = at - found->first, whole = size_of(found->second);
  return offset < whole && bytes <= whole - offset ? found : map.end();
}

CUresult check(const CUmemAllocationProp* props, Device** device) {
  if (!props || props->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (props->requestedHandleTypes & ~static_cast<int>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *device = nullptr;
  if (on_host(props->location.type)) return CUDA_SUCCESS;
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = find_device(props->location.id);
  return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUmemGenericAllocationHandle add_handle(const PhysicalPtr& memory) {
  CUmemGenericAllocationHandle handle = all().next++;
  all().handles[handle] = memory;
  return handle;
}

void* pointer(uint64_t at) { return reinterpret_cast<void*>(at); }

// Makes the addresses reserved ones again that nobody may touch.
void clear(uint64_t at, size_t bytes) {
  mmap(pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

HCQ_API cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* props,
                                      CUmemAllocationGranularity_flags which) {
  return with_init([&]() -> CUresult {
    Device* device;
    if (CUresult result = check(props, &device)) return result;
    if (!out || which < 0 || which > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
    *out = granularity;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                            unsigned long long flags) {
  return with_init([&]() -> CUresult {
    if (!out || !bytes || bytes % granularity || flags || (alignment & (alignment - 1)))
      return CUDA_ERROR_INVALID_VALUE;
    alignment = alignment > granularity ? alignment : granularity;
    if (bytes > (size_t{1} << 46) || alignment > (size_t{1} << 40)) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t whole = bytes + alignment;
    void* hint = wanted % alignment ? nullptr : pointer(wanted);
    void* got = mmap(hint, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t begin = reinterpret_cast<uint64_t>(got), at = (begin + alignment - 1) / alignment * alignment;
    if (at > begin) munmap(got, at - begin);
    munmap(pointer(at + bytes), begin + whole - at - bytes);
    std::lock_guard<std::mutex> hold(all().lock);
    all().reserved[at] = bytes;
    *out = at;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().reserved.find(at);
    if (found == all().reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    auto mapped = all().mapped.lower_bound(at);
    if (mapped != all().mapped.end() && mapped->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
    munmap(pointer(at), bytes);
    all().reserved.erase(found);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* props,
                    unsigned long long flags) {
  return with_init([&]() -> CUresult {
    Device* device;
    if (CUresult result = check(props, &device)) return result;
    if (!out || !bytes || bytes % granularity || flags) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t{1} << 46) || (device && !device->take(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    int file = memfd_create("hcq-cudacpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes))) {
      if (file >= 0) close(file);
      if (device) device->give(bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto memory = std::make_shared<Physical>(*props, device, bytes, file);
    std::lock_guard<std::mutex> hold(all().lock);
    *out = add_handle(memory);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().handles.find(handle);
    if (found == all().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second->handles == 0) all().handles.erase(found);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto memory = all().handles.find(handle);
    if (memory == all().handles.end() || offset || flags || !bytes || bytes > memory->second->bytes ||
        at % granularity || bytes % granularity) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto place = around(all().reserved, at, bytes, [](size_t whole) { return whole; });
    if (place == all().reserved.end()) return CUDA_ERROR_INVALID_VALUE;
    auto range = std::make_shared<Range>(at, bytes, Memory::mapped, nullptr, memory->second->device);
    range->handle_types = static_cast<unsigned>(memory->second->props.requestedHandleTypes);
    if (!add_range(range)) return CUDA_ERROR_INVALID_VALUE;  // something is mapped there
    void* got = mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second->file, 0);
    if (got == MAP_FAILED) return remove_range(at), CUDA_ERROR_MAP_FAILED;
    all().mapped[at] = Mapping{bytes, memory->second};
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemUnmap(CUdeviceptr at, size_t bytes) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    uint64_t end = at;  // whole mappings, side by side
    for (auto one = all().mapped.find(at); one != all().mapped.end() && one->first == end && end < at + bytes; one++) {
      end += one->second.bytes;
    }
    if (!bytes || end != at + bytes) return CUDA_ERROR_INVALID_VALUE;
    for (auto one = all().mapped.find(at); one != all().mapped.end() && one->first < end;) {
      remove_range(one->first);
      clear(one->first, one->second.bytes);
      one = all().mapped.erase(one);
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* descs, size_t count) {
  return with_init([&]() -> CUresult {
    if (!descs || !count || !bytes) return CUDA_ERROR_INVALID_VALUE;
    auto most = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // one address space: what one may do, all may
    for (size_t i = 0; i < count; i++) {
      bool known = descs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || descs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                   descs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      bool device = descs[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE;
      if (!known || (device && !find_device(descs[i].location.id))) return CUDA_ERROR_INVALID_VALUE;
      most = descs[i].flags > most ? descs[i].flags : most;
    }
    std::lock_guard<std::mutex> hold(all().lock);
    uint64_t end = at;
    auto first = all().mapped.find(at);
    for (auto one = first; one != all().mapped.end() && one->first == end && end < at + bytes; one++) {
      end += one->second.bytes;
    }
    if (end != at + bytes) return CUDA_ERROR_INVALID_VALUE;
    int protection = most == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
                     : most == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                             : PROT_READ | PROT_WRITE;
    mprotect(pointer(at), bytes, protection);
    for (auto one = first; one != all().mapped.end() && one->first < end; one++) one->second.access = most;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr at) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = around(all().mapped, at, 1, [](const Mapping& one) { return one.bytes; });
    if (!flags || !location || found == all().mapped.end()) return CUDA_ERROR_INVALID_VALUE;
    *flags = static_cast<unsigned long long>(found->second.access);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().handles.find(handle);
    if (!out || found == all().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    *out = found->second->props;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* at) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = around(all().mapped, reinterpret_cast<uint64_t>(at), 1, [](const Mapping& one) { return one.bytes; });
    if (!out || found == all().mapped.end()) return CUDA_ERROR_INVALID_VALUE;
    const PhysicalPtr& memory = found->second.memory;
    for (auto& [handle, one] : all().handles) {
      if (one != memory) continue;
      memory->handles++;
      return *out = handle, CUDA_SUCCESS;
    }
    memory->handles = 1;
    *out = add_handle(memory);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                     unsigned long long flags) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().handles.find(handle);
    if (!out || flags || found == all().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if (!(found->second->props.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
    int copy = fcntl(found->second->file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = copy;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                       CUmemAllocationHandleType type) {
  return with_context([&](Context& context) -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    struct stat info;
    int file = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    if (fstat(file, &info) || info.st_size < 1 || info.st_size % static_cast<off_t>(granularity)) {
      return close(file), CUDA_ERROR_INVALID_VALUE;
    }
    CUmemAllocationProp props = {};
    props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.requestedHandleTypes = type;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, context.device.ordinal};
    // Another allocation pays for the memory.
    auto memory = std::make_shared<Physical>(props, nullptr, static_cast<size_t>(info.st_size), file);
    std::lock_guard<std::mutex> hold(all().lock);
    *out = add_handle(memory);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
