// What every entry of the API does first. What does not live here: the checks of arguments.
#pragma once
#include <cstring>
#include <new>

#include "device/context.hpp"

namespace cudacpu {

// CUDA_SUCCESS once cuInit() was called, and in no child that was forked since.
CUresult initialized();

// Whether the calling thread runs a host function of a stream: what works in a context is not permitted there.
extern thread_local bool in_host_function;

// Runs `body() -> CUresult` where the API is initialized.
template <class F>
CUresult with_init(F&& body) {
  try {
    CUresult result = initialized();
    return result ? result : body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// Writes a value of this type where the caller gave a void*, however that is aligned.
template <class T>
CUresult give(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Runs `body(Context&) -> CUresult` with the calling thread's context, unless that has failed.
template <class F>
CUresult with_context(F&& body) {
  return with_init([&]() -> CUresult {
    if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    Context* context = Context::current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = context->error();
    return result ? result : body(*context);
  });
}

}  // namespace cudacpu
