// What the environment says of the devices: see settings.hpp.
#include "device/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "api/log.hpp"

namespace cudacpu {
namespace {

constexpr int most_devices = 64;

CUresult read_count(int* count) {
  const char* value = std::getenv("HCQ_CUDACPU_DEVICES");
  *count = 1;
  if (!value || !*value) return CUDA_SUCCESS;
  char* end;
  long number = std::strtol(value, &end, 10);
  if (*end || number < 0 || number > most_devices) {
    return wrong("HCQ_CUDACPU_DEVICES", value, "a number of devices from 0 to 64");
  }
  *count = static_cast<int>(number);
  return CUDA_SUCCESS;
}

// Those of `count` devices that CUDA_VISIBLE_DEVICES names, in its order: all without it, none after the first that
// there isn't. Numbers only.
std::vector<int> visible(int count) {
  std::vector<int> found;
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !value && i < count; i++) found.push_back(i);
  for (const char* at = value; at && *at;) {
    char* end;
    long number = std::strtol(at, &end, 10);
    bool repeated = std::find(found.begin(), found.end(), number) != found.end();
    if (end == at || (*end && *end != ',') || number < 0 || number >= count || repeated) break;
    found.push_back(static_cast<int>(number));
    at = *end ? end + 1 : end;
  }
  return found;
}

CUresult read_capability(int* capability) {
  const char* value = std::getenv("HCQ_CUDACPU_CC");
  if (!value || !*value) return CUDA_SUCCESS;
  int major = 0, minor = 0, used = 0;
  if (std::sscanf(value, "%d.%d%n", &major, &minor, &used) != 2 || value[used] || major < 5 || major > 20 ||
      minor < 0 || minor > 9) {
    return wrong("HCQ_CUDACPU_CC", value, "a compute capability, e.g. 8.6");
  }
  *capability = major * 10 + minor;
  return CUDA_SUCCESS;
}

CUresult read_memory(size_t* bytes) {
  const char* value = std::getenv("HCQ_CUDACPU_MEMORY");
  *bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 2;
  if (!value || !*value) return CUDA_SUCCESS;
  char* end;
  double number = std::strtod(value, &end);
  double unit = *end == 'K' ? 0x1p10 : *end == 'M' ? 0x1p20 : *end == 'G' ? 0x1p30 : 1;
  if (unit > 1) end++;
  if (end == value || *end || !(number * unit >= 1) || number * unit > 0x1p47) {
    return wrong("HCQ_CUDACPU_MEMORY", value, "an amount of memory, e.g. 512M or 4G");
  }
  *bytes = static_cast<size_t>(number * unit);
  return CUDA_SUCCESS;
}

CUresult read_peers(bool* peers) {
  const char* value = std::getenv("HCQ_CUDACPU_PEERS");
  if (!value || !*value) return CUDA_SUCCESS;
  *peers = value[0] == '1';
  if (value[1] || (value[0] != '0' && !*peers)) return wrong("HCQ_CUDACPU_PEERS", value, "0 or 1");
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read(Settings& settings) {
  int count = 0;
  CUresult result = read_count(&count);
  if (!result) result = read_capability(&settings.capability);
  if (!result) result = read_memory(&settings.memory_bytes);
  if (!result) result = read_peers(&settings.peers);
  if (!result) settings.visible = visible(count);
  return result;
}

CUresult wrong(const char* name, const char* value, const std::string& expected) {
  log_line(CU_LOG_LEVEL_ERROR, std::string(name) + "=" + value + " is not " + expected);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cudacpu
