// dev.timeline_lock: what clients hold while they raise the timeline themselves beside launching threads.
#include "python/common.hpp"

namespace hcq {

bool timeline_lock_free(DeviceObject* device) {
  unsigned long me = PyThread_get_thread_ident();
  while (device->lock_owner && device->lock_owner != me) {
    PyThreadState* thread = PyEval_SaveThread();
    timespec t{0, 20000};
    nanosleep(&t, nullptr);
    PyEval_RestoreThread(thread);
    if (PyErr_CheckSignals() != 0) return false;
  }
  return true;
}

namespace {
// A reentrant context manager; launches of other threads wait while it is held. Guarded by the GIL.
struct LockObject {
  PyObject_HEAD PyObject* device;
};
PyTypeObject* Lock_Type;

PyObject* lock_enter(PyObject* self, PyObject*) {
  DeviceObject* d = reinterpret_cast<DeviceObject*>(reinterpret_cast<LockObject*>(self)->device);
  if (!device_of(reinterpret_cast<PyObject*>(d)) || !timeline_lock_free(d)) return nullptr;
  d->lock_owner = PyThread_get_thread_ident();
  ++d->lock_depth;
  Py_INCREF(self);
  return self;
}

PyObject* lock_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
  DeviceObject* d = reinterpret_cast<DeviceObject*>(reinterpret_cast<LockObject*>(self)->device);
  if (d->lock_owner != PyThread_get_thread_ident())
    return PyErr_Format(PyExc_RuntimeError, "timeline_lock is released by a thread that does not hold it");
  if (--d->lock_depth == 0) d->lock_owner = 0;
  Py_RETURN_NONE;
}

void lock_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<LockObject*>(self)->device);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef lock_methods[] = {
    {"__enter__", lock_enter, METH_NOARGS, nullptr},
    {"acquire", lock_enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(lock_exit)), METH_FASTCALL, nullptr},
    {"release", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(lock_exit)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot lock_slots[] = {{Py_tp_methods, lock_methods},
                            {Py_tp_dealloc, reinterpret_cast<void*>(lock_dealloc)},
                            {Py_tp_doc, const_cast<char*>("Reentrant lock around a device's timeline.")},
                            {0, nullptr}};
PyType_Spec lock_spec = {"hcq._native.TimelineLock", sizeof(LockObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, lock_slots};

}  // namespace

PyObject* timeline_lock_new(PyObject* self) {
  auto* lock = reinterpret_cast<LockObject*>(Lock_Type->tp_alloc(Lock_Type, 0));
  if (!lock) return nullptr;
  Py_INCREF(self);
  lock->device = self;
  return reinterpret_cast<PyObject*>(lock);
}

int init_timeline_lock(PyObject* module) {
  Lock_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &lock_spec, nullptr));
  return Lock_Type ? 0 : -1;
}

}  // namespace hcq
