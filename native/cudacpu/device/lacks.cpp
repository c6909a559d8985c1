// What devices do without: see lacks.hpp.
#include "device/lacks.hpp"

#include <cstdlib>
#include <string>

#include "device/settings.hpp"

namespace cudacpu {
namespace {

struct Named {
  const char* name;
  Lack lack;
};

constexpr Named names[] = {
    {"memory-operations", Lack::memory_operations},
    {"managed-access", Lack::managed_access},
    {"pools", Lack::pools},
    {"registering", Lack::registering},
    {"mapping", Lack::mapping},
    {"unified-addresses", Lack::unified_addresses},
    {"graphs", Lack::graphs},
};

}  // namespace

CUresult read_lacks() {
  const char* value = std::getenv("HCQ_CUDACPU_WITHOUT");
  std::string left = value ? value : "", known;
  lacking = 0;
  while (!left.empty()) {
    size_t comma = left.find(',');
    std::string name = left.substr(0, comma);
    left = comma == std::string::npos ? "" : left.substr(comma + 1);
    unsigned found = 0;
    known.clear();
    for (const Named& each : names) {
      if (name == each.name) found = static_cast<unsigned>(each.lack);
      known += (known.empty() ? "" : ", ") + std::string(each.name);
    }
    if (!found) return wrong("HCQ_CUDACPU_WITHOUT", value, "some of " + known + ", with commas between them");
    lacking |= found;
  }
  return CUDA_SUCCESS;
}

bool lacks(CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
      return lacks(Lack::memory_operations);
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return lacks(Lack::managed_access);
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
      return lacks(Lack::pools);
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return lacks(Lack::registering);
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      return lacks(Lack::mapping);
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return lacks(Lack::unified_addresses);
    default:
      return false;
  }
}

}  // namespace cudacpu
