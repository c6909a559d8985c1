// cuFunc*: what can be asked of a function, and set.
#include "module/function.hpp"

#include <algorithm>

#include "api/api_launch.hpp"
#include "api/entry.hpp"
#include "api/handle.hpp"

namespace cudacpu {

namespace {

constexpr int kSharedWithoutAsking = 48 << 10;

int optin(const Kernel& kernel, const Device& device) {
  return limit(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - static_cast<int>(kernel.code.shared);
}

}  // namespace

int limit(const Device& device, CUdevice_attribute which) {
  int value = 0;
  device.attribute(which, &value);
  return value;
}

Attributes attributes_of(const Kernel& kernel) {
  return {std::max(0, kSharedWithoutAsking - static_cast<int>(kernel.code.shared)), -1};
}

CUresult get_attribute(const Kernel& kernel, const Device& device, const Attributes& set, CUfunction_attribute which,
                       int* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: {
      int most = limit(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      *value = kernel.max_threads ? std::min(static_cast<int>(kernel.max_threads), most) : most;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.code.shared);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.code.local);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(kernel.registers);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = device.capability;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = set.max_dynamic;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = set.carveout;
      return CUDA_SUCCESS;
    default:
      if (which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;  // of caches and clusters, which there are none of
      return CUDA_SUCCESS;
  }
}

CUresult set_attribute(const Kernel& kernel, const Device& device, Attributes* set, CUfunction_attribute which,
                       int value) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > optin(kernel, device)) return CUDA_ERROR_INVALID_VALUE;
      set->max_dynamic = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      set->carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return value == 1 || value == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // the others can only be read
  }
}

CUresult param_info(const Kernel& kernel, size_t index, size_t* offset, size_t* size) {
  if (!offset || index >= kernel.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel.params[index].offset;
  if (size) *size = kernel.params[index].size;
  return CUDA_SUCCESS;
}

HCQ_API cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  return with_function(handle, [&](Function& f) {
    return get_attribute(*f.kernel, f.context->device, {f.max_dynamic.load(), f.carveout.load()}, which, value);
  });
}

HCQ_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  return with_function(handle, [&](Function& f) {
    Attributes set{f.max_dynamic.load(), f.carveout.load()};
    CUresult result = set_attribute(*f.kernel, f.context->device, &set, which, value);
    f.max_dynamic.store(set.max_dynamic);
    f.carveout.store(set.carveout);
    return result;
  });
}

HCQ_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  return with_function(handle, [&](Function& f) {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    f.cache.store(config);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return with_function(handle, [](Function&) { return CUDA_SUCCESS; });
}

HCQ_API cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return with_function(handle, [&](Function& f) {
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    *module = f.module;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuFuncGetName(const char** name, CUfunction handle) {
  return with_function(handle, [&](Function& f) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = f.kernel->name.c_str();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return with_function(handle, [&](Function& f) { return param_info(*f.kernel, index, offset, size); });
}

HCQ_API cuFuncGetParamCount(CUfunction handle, size_t* count) {
  return with_function(handle, [&](Function& f) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = f.kernel->params.size();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  return with_function(handle, [&](Function&) {
    if (!state) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuFuncLoad(CUfunction handle) {
  return with_function(handle, [](Function&) { return CUDA_SUCCESS; });
}

}  // namespace cudacpu
