// KernelBase: what a portable kernel is made of. It keeps a few entries (kernel_entry), and gives launchers their sizes
// (kernel_launch); all else is Python's (hcq.kernels.launch).
#include <cstring>
#include <new>

#include "python/kernel_launch.hpp"

namespace hcq {

namespace {
constexpr size_t kEntries = 8;  // types and devices that a kernel keeps at hand

PyTypeObject* Kernel_Type;
PyObject* k_sizes;  // interned

// The numbers of a size, where it is written plainly: whole numbers below 2^31, one or up to three of them.
bool plain_size(PyObject* o, uint32_t out[3]) {
  PyObject* const* items = &o;
  Py_ssize_t count = 1;
  if (PyTuple_CheckExact(o)) {
    count = PyTuple_GET_SIZE(o);
    if (count < 1 || count > 3) return false;
    items = &PyTuple_GET_ITEM(o, 0);
  }
  out[1] = out[2] = 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!PyLong_CheckExact(items[i])) return false;
    int overflow;
    long v = PyLong_AsLongAndOverflow(items[i], &overflow);
    if (overflow || v < 0 || v > 0x7fffffff) return false;
    out[i] = static_cast<uint32_t>(v);
  }
  return true;
}

PyObject* kernel_subscript(PyObject* self, PyObject* key) {
  LaunchSizes sizes;
  if (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2 && plain_size(PyTuple_GET_ITEM(key, 0), sizes.groups) &&
      plain_size(PyTuple_GET_ITEM(key, 1), sizes.items))
    return launcher_new(self, sizes);
  Ref asked(PyObject_CallMethodObjArgs(self, k_sizes, key, nullptr));
  if (!asked) return nullptr;
  if (!PyTuple_Check(asked.get()) || PyTuple_GET_SIZE(asked.get()) != 2 ||
      !plain_size(PyTuple_GET_ITEM(asked.get(), 0), sizes.groups) ||
      !plain_size(PyTuple_GET_ITEM(asked.get(), 1), sizes.items)) {
    PyErr_SetString(PyExc_TypeError, "_sizes must return two tuples of three whole numbers");
    return nullptr;
  }
  return launcher_new(self, sizes);
}

// _remember(program, device, params, check): whether launches of this sort will be made natively. `params`: for each
// parameter (word, object, relevant).
PyObject* kernel_remember(PyObject* object, PyObject* args) {
  PyObject *program, *device, *params, *check;
  if (!PyArg_ParseTuple(args, "OUO!O", &program, &device, &PyTuple_Type, &params, &check)) return nullptr;
  KernelObject* self = kernel_of(object);
  if (!PyObject_TypeCheck(program, Program_Type) || Py_TYPE(program)->tp_call != Program_Type->tp_call) Py_RETURN_FALSE;
  auto* launched = reinterpret_cast<ProgramObject*>(program);
  size_t count = static_cast<size_t>(PyTuple_GET_SIZE(params));
  if (!launched->program || !launched->program->typed || launched->program->params.size() > count ||
      count > kMaxParams || launched->program->kernargs_size > sizeof PackedLaunch::bytes)
    Py_RETURN_FALSE;
  try {
    auto entry = entry_make(launched, device, params, check);
    if (!entry) {
      if (PyErr_Occurred()) return nullptr;
      Py_RETURN_FALSE;
    }
    // Gone entries are let go after the vector has changed: that may run Python.
    std::vector<std::shared_ptr<KernelEntry>> before;
    before.swap(*self->entries);
    self->entries->push_back(std::move(entry));
    for (auto& each : before)
      if (self->entries->size() < kEntries && !entry_replaces(*self->entries->front(), *each))
        self->entries->push_back(each);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_TRUE;
}

PyObject* kernel_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = kernel_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->entries = new (std::nothrow) std::vector<std::shared_ptr<KernelEntry>>;
  if (!self->entries) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

int kernel_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (auto* entries = kernel_of(object)->entries)
    for (auto& entry : *entries) {
      if (entry.use_count() > 1) continue;  // a launch holds it too
      Py_VISIT(reinterpret_cast<PyObject*>(entry->program));
      Py_VISIT(entry->device.get());
      Py_VISIT(entry->check.get());
      for (auto& param : entry->params) Py_VISIT(param.object.get());
    }
  return 0;
}
int kernel_clear(PyObject* object) {
  if (auto* entries = kernel_of(object)->entries) {
    std::vector<std::shared_ptr<KernelEntry>> gone;
    gone.swap(*entries);
  }
  return 0;
}
void kernel_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (kernel_of(object)->weakrefs) PyObject_ClearWeakRefs(object);
  kernel_clear(object);
  delete kernel_of(object)->entries;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef kernel_methods[] = {{"_remember", kernel_remember, METH_VARARGS,
                                 "_remember(program, device, params, check)\n--\n\n"
                                 "Make launches of these types natively from now on; whether that can be."},
                                {nullptr, nullptr, 0, nullptr}};
PyMemberDef kernel_members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(KernelObject, weakrefs), READONLY, nullptr},
                                {nullptr, 0, 0, 0, nullptr}};
PyType_Slot kernel_slots[] = {{Py_tp_new, reinterpret_cast<void*>(kernel_new)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
                              {Py_tp_traverse, reinterpret_cast<void*>(kernel_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(kernel_clear)},
                              {Py_mp_subscript, reinterpret_cast<void*>(kernel_subscript)},
                              {Py_tp_methods, kernel_methods},
                              {Py_tp_members, kernel_members},
                              {Py_tp_doc, const_cast<char*>("What hcq.kernels.launch.Kernel is made of.")},
                              {0, nullptr}};
PyType_Spec kernel_spec = {"hcq._native.KernelBase", sizeof(KernelObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, kernel_slots};
}  // namespace

int init_kernel(PyObject* module) {
  k_sizes = PyUnicode_InternFromString("_sizes");
  if (!k_sizes) return -1;
  Kernel_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &kernel_spec, nullptr));
  return Kernel_Type ? PyModule_AddType(module, Kernel_Type) : -1;
}

}  // namespace hcq
