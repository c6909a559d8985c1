// cuGetProcAddress: which symbol a name means for a version of CUDA. What does not live here: the table (names.inc).
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/api.hpp"

namespace cudacpu {
namespace {

struct Entry {
  const char* name;
  int version;
  bool per_thread;
  const char* symbol;
};

constexpr Entry entries[] = {
#define X(name, version, per_thread, symbol) {name, version, per_thread, symbol},
#include "api/names.inc"
#undef X
};

using Table = std::unordered_map<std::string, std::vector<const Entry*>>;

const Table& table() {
  static const auto* all = [] {  // never destroyed: threads may ask until the process is gone
    auto* made = new Table();
    for (const Entry& entry : entries) (*made)[entry.name].push_back(&entry);
    return made;
  }();
  return *all;
}

void* exported(const char* symbol) {
  static void* const self = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&exported), &info) ? dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY)
                                                             : nullptr;
  }();
  return self ? dlsym(self, symbol) : nullptr;
}

CUdriverProcAddressQueryResult find(const char* name, int version, bool per_thread, void** out) {
  auto found = table().find(name);
  if (found == table().end()) return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const Entry* best = nullptr;
  bool exists = false;
  for (const Entry* entry : found->second) {
    if (entry->per_thread && !per_thread) continue;
    void* at = exported(entry->symbol);
    exists |= at != nullptr;
    if (!at || entry->version > version) continue;
    // The newest that the caller knows of; of two variants of one age, the per-thread one comes with the wish for it.
    bool better = !best || entry->per_thread > best->per_thread ||
                  (entry->per_thread == best->per_thread && entry->version > best->version);
    if (!better) continue;
    best = entry;
    *out = at;
  }
  if (best) return CU_GET_PROC_ADDRESS_SUCCESS;
  return exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

}  // namespace

HCQ_API cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !function || version > cuda_version || (flags & ~known) || flags == known) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  CUdriverProcAddressQueryResult result =
      find(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, function);
  if (status) *status = result;
  // Who asked for the status gets it there; who didn't has to see it.
  return result == CU_GET_PROC_ADDRESS_SUCCESS || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

HCQ_API cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace cudacpu
