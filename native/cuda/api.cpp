// Finding libcuda.so.1 and its functions (api.hpp).
#include "cuda/api.hpp"

#include <dlfcn.h>

#include <mutex>

namespace hcq::cuda {

namespace {
constexpr int kOldest = 11070;  // the memory operations of streams have had today's form since CUDA 11.7

constexpr const char* kInstall = "install NVIDIA's driver; HCQ_CUDA=cpu runs CUDA on this processor, for tests";

Api g_api;
bool g_loaded = false;

void find(void* library, Api& a) {
  std::string missing;
  auto get = [&](const char* symbol, bool optional) {
    void* found = dlsym(library, symbol);
    if (!found && !optional && missing.empty()) missing = symbol;
    return found;
  };
#define HCQ_CUDA_FIND(name, symbol, arguments) a.name = reinterpret_cast<decltype(a.name)>(get(#symbol, false));
#define HCQ_CUDA_FIND_OPTIONAL(name, symbol, arguments) a.name = reinterpret_cast<decltype(a.name)>(get(#symbol, true));
  HCQ_CUDA_FUNCTIONS(HCQ_CUDA_FIND)
  HCQ_CUDA_OPTIONAL(HCQ_CUDA_FIND_OPTIONAL)
#undef HCQ_CUDA_FIND
#undef HCQ_CUDA_FIND_OPTIONAL
  if (a.driver_version && !missing.empty()) {
    int version = 0;
    a.driver_version(&version);
    throw Unavailable{"NVIDIA's driver here is for CUDA " + version_words(version) + " and has no " + missing,
                      "install a driver for CUDA " + version_words(kOldest) + " or later"};
  }
  if (!missing.empty()) throw Unavailable{"the libcuda.so.1 here has no " + missing, kInstall};
}

void start(const Api& a) {
  int version = 0;
  Result result = a.driver_version(&version);
  if (result == kSuccess && version < kOldest)
    throw Unavailable{"NVIDIA's driver here is for CUDA " + version_words(version),
                      "install a driver for CUDA " + version_words(kOldest) + " or later"};
  result = a.init(0);
  if (result == kNoDevice)
    throw Unavailable{"NVIDIA's driver finds no device (CUDA_ERROR_NO_DEVICE)",
                      "CUDA_VISIBLE_DEVICES may hide those there are; HCQ_CUDA=cpu runs CUDA on this processor"};
  if (result != kSuccess) {
    const char* name = nullptr;
    a.error_name(result, &name);
    throw Unavailable{std::string("NVIDIA's driver does not start: cuInit gave ") + (name ? name : "an error") + " (" +
                          std::to_string(result) + ")",
                      "see nvidia-smi; a driver that was updated needs its kernel module loaded anew"};
  }
}
}  // namespace

std::string version_words(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const Api& api() { return g_api; }

const Api& load() {
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  if (g_loaded) return g_api;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays: the driver can't be unloaded
  if (!library) throw Unavailable{"there is no driver of NVIDIA's here (libcuda.so.1)", kInstall};
  Api found{};
  find(library, found);
  start(found);
  g_api = found;
  g_loaded = true;
  return g_api;
}

std::string words(Result result) {
  const char *name = nullptr, *text = nullptr;
  std::string number = "(" + std::to_string(result) + ")";
  if (g_api.error_name(result, &name) != kSuccess || !name) return "CUDA's error " + number;
  std::string said = name + (" " + number);
  if (g_api.error_string(result, &text) == kSuccess && text) said += std::string(": ") + text;
  return said;
}

std::string failure_of(const char* what, Result result) { return std::string(what) + " gave " + words(result); }

void check(const char* what, Result result) {
  if (result != kSuccess) throw Failure{result, failure_of(what, result)};
}

}  // namespace hcq::cuda
