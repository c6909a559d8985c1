// Portable kernels and their launches: kernel[groups, items](...). hcq.kernels.launch is the rest of them.
#pragma once
#include "python/kernel_entry.hpp"

namespace hcq {

struct KernelObject {
  PyObject_HEAD std::vector<std::shared_ptr<KernelEntry>>* entries;  // under the GIL
  PyObject* weakrefs;
};
inline KernelObject* kernel_of(PyObject* o) { return reinterpret_cast<KernelObject*>(o); }

// kernel[groups, items]; a new reference.
PyObject* launcher_new(PyObject* kernel, const LaunchSizes& sizes);

int init_kernel(PyObject* module);
int init_kernel_launch(PyObject* module);

}  // namespace hcq
