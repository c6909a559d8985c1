// cuInit, and what a fork does. What does not live here: the devices (device.cpp).
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "api/entry.hpp"

namespace cudacpu {
namespace {

enum State { fresh, ready, forked };
std::atomic<int> state{fresh};

}  // namespace

CUresult initialized() {
  // Acquire: what cuInit() made in another thread is seen.
  return state.load(std::memory_order_acquire) == ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

HCQ_API cuInit(unsigned flags) {
  static std::mutex lock;  // one thread makes the devices; never held over a fork that matters: see the handler
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  int now = state.load(std::memory_order_acquire);
  if (now != fresh) return now == ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard<std::mutex> hold(lock);
  if (state.load(std::memory_order_relaxed) == ready) return CUDA_SUCCESS;  // the lock orders it
  CUresult result = make_devices();
  if (result) return result;
  // The threads stay behind in the parent: a child has to begin with exec, as on a GPU.
  pthread_atfork(nullptr, nullptr, [] { state.store(forked, std::memory_order_relaxed); });  // one thread is left
  state.store(ready, std::memory_order_release);                                             // pairs with initialized()
  return CUDA_SUCCESS;
}

HCQ_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = cuda_version;
  return CUDA_SUCCESS;
}

// Tables that only NVIDIA's own libraries know. NVRTC asks for one whenever there is a driver, and takes no for an
// answer, but not that nobody answers.
HCQ_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

// Profiles are for who profiles: there is nothing to switch on or off.
HCQ_API cuProfilerStart() {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}

HCQ_API cuProfilerStop() { return cuProfilerStart(); }

}  // namespace cudacpu
