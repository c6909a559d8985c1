// The API's entries for contexts and primary ones. What does not live here: what a context is (context.cpp), access to
// other devices' memory (peer.cpp).
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "graph/capture.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

std::mutex primaries;  // guards the references of all primary contexts; held while one comes to life or ends

bool valid_flags(unsigned flags) { return !(flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)); }

// The context of a handle, which null stands for the current one's.
CUresult find_context(CUcontext handle, Context** out) {
  *out = handle ? handles<Context>().find(handle) : Context::current();
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult retain(Context& context) {
  std::lock_guard<std::mutex> hold(primaries);
  if (context.references.load(std::memory_order_relaxed) == 0) context.revive();  // the lock orders the count
  context.references.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!out || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    auto* context = new Context(*device, false, flags);
    *out = context->handle;
    return Context::push(context);
  });
}

}  // namespace

HCQ_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = device->primary->handle;
    return retain(*device->primary);
  });
}

HCQ_API cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    Context& context = *device->primary;
    std::lock_guard<std::mutex> hold(primaries);
    int left = context.references.load(std::memory_order_relaxed);  // the lock orders the count
    if (left == 0) return CUDA_ERROR_INVALID_CONTEXT;
    context.references.store(left - 1, std::memory_order_relaxed);
    if (left == 1) context.destroy();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDevicePrimaryCtxRelease(CUdevice ordinal) { return cuDevicePrimaryCtxRelease_v2(ordinal); }

HCQ_API cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard<std::mutex> hold(primaries);
    if (device->primary->references.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
    device->primary->destroy();
    device->primary->revive();  // those who retain it go on with it, as new
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDevicePrimaryCtxReset(CUdevice ordinal) { return cuDevicePrimaryCtxReset_v2(ordinal); }

HCQ_API cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    device->primary->flags.store(flags, std::memory_order_relaxed);  // only told, never acted on
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

HCQ_API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = device->primary->flags.load(std::memory_order_relaxed);
    *active = device->primary->references.load(std::memory_order_relaxed) > 0;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice ordinal) { return create(out, flags, ordinal); }

HCQ_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinities, int count, unsigned flags, CUdevice ordinal) {
  if (affinities || count) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, ordinal);
}

HCQ_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags, CUdevice ordinal) {
  if (params && (params->execAffinityParams || params->numExecAffinityParams)) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (params && params->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, ordinal);
}

HCQ_API cuCtxDestroy_v2(CUcontext handle) {
  return with_init([&]() -> CUresult {
    Context* context = handles<Context>().find(handle);
    if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (context == Context::current()) Context::set(nullptr);
    handles<Context>().remove(handle);
    context->destroy();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

HCQ_API cuCtxPushCurrent_v2(CUcontext handle) {
  return with_init([&]() -> CUresult {
    Context* context = handles<Context>().find(handle);
    return context ? Context::push(context) : CUDA_ERROR_INVALID_CONTEXT;
  });
}

HCQ_API cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

HCQ_API cuCtxPopCurrent_v2(CUcontext* out) {
  return with_init([&]() -> CUresult {
    Context* context = nullptr;
    CUresult result = Context::pop(&context);
    if (out && !result) *out = context->handle;
    return result;
  });
}

HCQ_API cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

HCQ_API cuCtxSetCurrent(CUcontext handle) {
  return with_init([&]() -> CUresult {
    Context* context = handles<Context>().find(handle);
    if (handle && !context) return CUDA_ERROR_INVALID_CONTEXT;
    Context::set(context);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetCurrent(CUcontext* out) {
  return with_init([&]() -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    Context* context = Context::current();
    *out = context ? context->handle : nullptr;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  return with_init([&]() -> CUresult {
    Context* context = nullptr;
    if (CUresult result = find_context(handle, &context)) return result;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = context->device.ordinal;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetDevice(CUdevice* out) { return cuCtxGetDevice_v2(out, nullptr); }

HCQ_API cuCtxGetId(CUcontext handle, unsigned long long* out) {
  return with_init([&]() -> CUresult {
    Context* context = nullptr;
    if (CUresult result = find_context(handle, &context)) return result;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = context->id;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return with_init([&]() -> CUresult {
    Context* context = nullptr;
    if (CUresult result = find_context(handle, &context)) return result;
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;  // the version of the interface of contexts, not of CUDA
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetFlags(unsigned* flags) {
  return with_context([&](Context& context) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags.load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxSetFlags(unsigned flags) {
  return with_context([&](Context& context) {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context.flags.store(flags, std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxSynchronize() {
  return with_context([&](Context& context) -> CUresult {
    CUresult result = check_waiting(context);
    return result ? result : synchronize(context);
  });
}

HCQ_API cuCtxSynchronize_v2(CUcontext handle) {
  return with_init([&]() -> CUresult {
    Context* context = nullptr;
    CUresult result = find_context(handle, &context);
    if (!result) result = context->error();
    if (!result) result = check_waiting(*context);
    return result ? result : synchronize(*context);
  });
}

HCQ_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  return with_context([&](Context& context) {
    if (!value || limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = context.limits[limit].load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](Context& context) {
    if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context.limits[limit].store(value, std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetCacheConfig(CUfunc_cache* out) {
  return with_context([&](Context& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<CUfunc_cache>(context.cache_config.load(std::memory_order_relaxed));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_context([&](Context& context) {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    context.cache_config.store(config, std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetSharedMemConfig(CUsharedconfig* out) {
  return with_context([&](Context& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = static_cast<CUsharedconfig>(context.shared_config.load(std::memory_order_relaxed));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Context& context) {
    if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) return CUDA_ERROR_INVALID_VALUE;
    context.shared_config.store(config, std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](Context&) {
    if (least) *least = least_priority;
    if (greatest) *greatest = greatest_priority;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuCtxResetPersistingL2Cache() {
  return with_context([&](Context&) { return CUDA_SUCCESS; });
}

}  // namespace cudacpu
