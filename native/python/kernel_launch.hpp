// Portable kernels' launches: kernel[groups, items](...). hcq.kernels.launch is the rest of them.
#pragma once
#include <Python.h>

namespace hcq {

int init_kernel_launch(PyObject* module);

}  // namespace hcq
