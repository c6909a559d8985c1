// Devices and their attributes. What does not live here: primary contexts' entries (context.cpp).
#include "device/device.hpp"

#include <cstdio>
#include <cstring>

#include "api/entry.hpp"
#include "device/context.hpp"
#include "device/lacks.hpp"
#include "device/settings.hpp"
#include "memory/arena.hpp"
#include "memory/memory.hpp"
#include "run/crew.hpp"

namespace cudacpu {
namespace {

// What depends on the compute capability: the CUDA programming guide's table of technical specifications.
struct Generation {
  int capability;
  int threads, blocks;       // of a multiprocessor, at most
  int shared, shared_optin;  // KiB: of a multiprocessor, of a block that opts in
  int single_to_double;
};

constexpr Generation generations[] = {
    {75, 1024, 16, 64, 64, 32},   {80, 2048, 32, 164, 163, 2},  {86, 1536, 16, 100, 99, 64},
    {87, 1536, 16, 164, 163, 32}, {89, 1536, 24, 100, 99, 64},  {90, 2048, 32, 228, 227, 2},
    {100, 2048, 32, 228, 227, 2}, {103, 2048, 32, 228, 227, 2}, {120, 1536, 24, 100, 99, 64},
};

const Generation& generation(int capability) {
  const Generation* best = &generations[0];
  for (const Generation& one : generations) {
    if (one.capability <= capability) best = &one;
  }
  return *best;
}

bool g_peers = true;  // written before there are devices

}  // namespace

bool peers() { return g_peers; }

Device::Device(int ordinal, int physical, int capability, size_t memory_bytes)
    : ordinal(ordinal),
      physical(physical),
      capability(capability),
      memory_bytes(memory_bytes),
      arena(*new Arena(this, false, checking())),
      primary(new Context(*this, true, 0)) {}

std::string Device::name() const { return "hcq CUDA on CPU"; }

CUuuid Device::uuid() const {
  CUuuid uuid = {};
  std::memcpy(uuid.bytes, "hcq-cudacpu-", 12);
  uuid.bytes[15] = static_cast<char>(physical);
  return uuid;
}

bool Device::take(size_t bytes) {
  size_t now = used.load(std::memory_order_relaxed);  // a count only
  do {
    if (bytes > memory_bytes - now) return false;
  } while (!used.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  return true;
}

bool Device::attribute(CUdevice_attribute which, int* value) const {
  const Generation& made = generation(capability);
  if (lacking && lacks(which)) return *value = 0, true;
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return *value = 1024, true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return *value = 64, true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return *value = 0x7FFFFFFF, true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return *value = 65535, true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return *value = 48 << 10, true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return *value = made.shared_optin << 10, true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return *value = made.shared << 10, true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return *value = capability >= 80 ? 1024 : 0, true;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return *value = 64 << 10, true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return *value = 32, true;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return *value = 0x7FFFFFFF, true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return *value = 65536, true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return *value = made.threads, true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return *value = made.blocks, true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return *value = static_cast<int>(cores()), true;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return *value = made.single_to_double, true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return *value = capability / 10, true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return *value = capability % 10, true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return *value = 1000000, true;  // kHz
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return *value = 1000000, true;  // kHz
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return *value = 128, true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return *value = 4 << 20, true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return *value = 512, true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return *value = 32, true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return *value = 2, true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return *value = physical + 1, true;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
      return *value = ordinal, true;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      return *value = capability >= 90 ? 4 : 1, true;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return *value = -1, true;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return *value = !checking(), true;  // the checks know only memory of the API's
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:  // memory is the host's, so that there is nothing to flush
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
      return *value = 1, true;
    default:
      // The rest isn't there: textures, interprocess handles, clusters, graphics, compression.
      return *value = 0, which > 0 && which < CU_DEVICE_ATTRIBUTE_MAX;
  }
}

std::vector<Device*>& devices() {
  static auto* all = new std::vector<Device*>();
  return *all;
}

CUresult make_devices() {
  Settings settings;
  CUresult result = read(settings);
  if (!result) result = read_lacks();
  if (result) return result;
  g_peers = settings.peers;
  for (int physical : settings.visible) {
    devices().push_back(
        new Device(static_cast<int>(devices().size()), physical, settings.capability, settings.memory_bytes));
  }
  return devices().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Device* find_device(CUdevice ordinal) {
  return ordinal >= 0 && static_cast<size_t>(ordinal) < devices().size() ? devices()[ordinal] : nullptr;
}

namespace {

// Runs `body(Device&)` for a device that there is.
template <class F>
CUresult with_device(CUdevice ordinal, F&& body) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    return device ? body(*device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

}  // namespace

HCQ_API cuDeviceGetCount(int* count) {
  return with_init([&] {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(devices().size());
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGet(CUdevice* out, int ordinal) {
  return with_device(ordinal, [&](Device&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = ordinal;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<size_t>(length), "%s", device.name().c_str());
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    *uuid = device.uuid();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) { return cuDeviceGetUuid_v2(uuid, ordinal); }

HCQ_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.memory_bytes;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    return value && device.attribute(which, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
    *major = device.capability / 10;
    *minor = device.capability % 10;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetProperties(CUdevprop* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto get = [&](int which) {
      int value = 0;
      device.attribute(static_cast<CUdevice_attribute>(which), &value);
      return value;
    };
    *out = {};
    out->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; i++) {
      out->maxThreadsDim[i] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
      out->maxGridSize[i] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
    }
    out->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    out->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    out->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    out->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    out->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    out->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    out->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetPCIBusId(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (!name || length < 13) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<size_t>(length), "0000:%02X:00.0", device.physical + 1);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetByPCIBusId(CUdevice* out, const char* name) {
  return with_init([&] {
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    if (std::sscanf(name, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
      domain = 0;
      if (std::sscanf(name, "%x:%x.%x", &bus, &slot, &function) < 2) return CUDA_ERROR_INVALID_VALUE;
    }
    for (Device* device : devices()) {
      if (domain || slot || function || static_cast<int>(bus) != device->physical + 1) continue;
      *out = device->ordinal;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

HCQ_API cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType type, CUdevice ordinal) {
  return with_device(ordinal, [&](Device&) {
    if (!value || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
