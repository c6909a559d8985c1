// Attributes of functions, and how many blocks fit on a multiprocessor. What does not live here: functions themselves
// (module.hpp).
#pragma once
#include "api/entry.hpp"
#include "module/module.hpp"

namespace cudacpu {

// Runs `body(Function&)` with what the handle means.
template <class F>
CUresult with_function(CUfunction handle, F&& body) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Function> function;
    if (CUresult result = find_function(handle, &function)) return result;
    return body(*function);
  });
}

// Those that can be set.
struct Attributes {
  int max_dynamic, carveout;
};

Attributes attributes_of(const Kernel& kernel);  // before any was set
CUresult get_attribute(const Kernel& kernel, const Device& device, const Attributes& set, CUfunction_attribute which,
                       int* value);
CUresult set_attribute(const Kernel& kernel, const Device& device, Attributes* set, CUfunction_attribute which,
                       int value);
// CUDA_ERROR_INVALID_VALUE past the last.
CUresult param_info(const Kernel& kernel, size_t index, size_t* offset, size_t* size);

// An attribute of a device that every device has.
int limit(const Device& device, CUdevice_attribute which);
// Blocks of so many threads that a multiprocessor has room for.
int resident_blocks(const Kernel& kernel, const Device& device, int threads, size_t dynamic_shared);

}  // namespace cudacpu
