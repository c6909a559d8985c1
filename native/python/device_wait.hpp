// The methods of a device that wait for it, or say whether there is something to wait for. For device_type.cpp.
#pragma once
#include "python/common.hpp"

namespace hcq {

PyObject* device_synchronize(PyObject* self, PyObject*);
PyObject* device_busy(PyObject* self, PyObject*);     // whether anything queued on it is unfinished; never blocks
PyObject* device_running(PyObject* self, PyObject*);  // whether a queue has work and does not stand at a wait

}  // namespace hcq
