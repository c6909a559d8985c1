// Prepared launches: arguments packed and checked once, kept by the callable.
#include <cstring>
#include <new>

#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "memory/memory.hpp"
#include "python/launch.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
struct PreparedObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* program;  // ProgramObject
  PyObject* held;     // tuple of the buffers (and their handles)
  PyObject* given;    // (bufs, vals, groups, items)
  Launch launch;
  uint8_t* arguments;
  bool arrays, empty;
};
PyTypeObject* Prepared_Type;

PyObject* call_prepared(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count)
    return PyErr_Format(PyExc_TypeError, "a prepared launch has its arguments already; it takes wait and stream");
  Keywords k;
  if (names) {
    if (!parse_keywords(args, names, &k)) return nullptr;
    if (k.global_size || k.local_size || k.vals)
      return PyErr_Format(PyExc_TypeError,
                          "a prepared launch has its sizes and values already; it takes wait and stream");
  }
  int wait = truth(k.wait);
  if (wait < 0 || !device_usable(self->launch.device->device)) return nullptr;
  PyObject* result;
  if (watching())
    result = enqueue_watched(self->program, self->given, self->launch, k.stream, wait, self->arrays, self->empty);
  else
    result = self->empty ? nothing(wait) : enqueue(self->launch, k.stream, wait, self->arrays);
  if (!result && self->arrays) {
    Py_INCREF(object);
    keep_until_passed(object);
  }
  return result;
}

PyObject* prepared_repr(PyObject* object) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  const Launch& launch = self->launch;
  if (launch.program->generation != g_generation)
    return PyUnicode_FromString("<PreparedLaunch inherited through fork>");
  return PyUnicode_FromFormat("<PreparedLaunch of %s on %s, groups (%u, %u, %u) of (%u, %u, %u)>",
                              launch.program->name.c_str(), launch.device->device->name.c_str(), launch.groups[0],
                              launch.groups[1], launch.groups[2], launch.items[0], launch.items[1], launch.items[2]);
}

void prepared_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  PyObject_GC_UnTrack(object);
  PyMem_Free(self->arguments);
  Py_XDECREF(self->program);
  Py_XDECREF(self->held);
  Py_XDECREF(self->given);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

int prepared_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->program);
  Py_VISIT(self->held);
  Py_VISIT(self->given);
  return 0;
}

PyMemberDef prepared_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PreparedObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot prepared_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(prepared_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(prepared_traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(prepared_repr)},
    {Py_tp_members, prepared_members},
    {Py_tp_doc,
     const_cast<char*>("A launch with everything bound: call it with wait= and stream=. Owns what it was given.")},
    {0, nullptr}};
PyType_Spec prepared_spec = {
    "hcq._native.PreparedLaunch", sizeof(PreparedObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    prepared_slots};
}  // namespace

PyObject* prepare(PyObject* self_object, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  ProgramObject* self = reinterpret_cast<ProgramObject*>(self_object);
  Keywords k;
  if (names && !parse_keywords(args + count, names, &k)) return nullptr;
  if (k.wait || k.stream) return PyErr_Format(PyExc_TypeError, "wait and stream are given when the launch is called");
  if (!program_usable(self)) return nullptr;
  Launch launch{self->program, self->device, {}, {}, nullptr, 0};
  const Limits& limits = self->device->device->limits;
  Arguments arguments;
  arguments.accesses = &self->accesses;
  if (!parse_groups(k.global_size, limits, launch.groups) || !parse_items(k.local_size, limits, launch.items) ||
      !check_sizes(*self->program, launch.groups, launch.items) ||
      !pack_arguments(*self->program, args, count, k.vals, &arguments))
    return nullptr;
  if (arguments.arrays && self->program->kind == EntryKind::elsewhere)
    return raise("LaunchError", self->program->name + ": arrays can't be prepared here: pass hcq.array(a, device)");
  Ref held(PyTuple_New(2 * count + 1)), given(launch_given(*self->program, args, count, k));
  if (!held || !given) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(held.get(), 2 * i, args[i]);
    // The memory too: a Buffer may be deallocated while this launch goes on using it.
    PyObject* memory = memory_keep(args[i]);
    if (!memory) return nullptr;
    PyTuple_SET_ITEM(held.get(), 2 * i + 1, memory);
  }
  PyObject* copies = arguments.copies ? arguments.copies.release() : Py_None;
  if (copies == Py_None) Py_INCREF(copies);
  PyTuple_SET_ITEM(held.get(), 2 * count, copies);
  auto* p = reinterpret_cast<PreparedObject*>(Prepared_Type->tp_alloc(Prepared_Type, 0));
  if (!p) return nullptr;
  p->vectorcall = call_prepared;
  Py_INCREF(self_object);
  p->program = self_object;
  p->held = held.release();
  p->given = given.release();
  p->arguments = static_cast<uint8_t*>(PyMem_Malloc(arguments.size ? arguments.size : 1));
  if (!p->arguments) {
    Py_DECREF(p);
    return PyErr_NoMemory();
  }
  std::memcpy(p->arguments, arguments.bytes, arguments.size);
  p->launch = launch;
  p->launch.arguments = p->arguments;
  p->launch.arguments_size = arguments.size;
  p->arrays = arguments.arrays;
  p->empty = !launch.groups[0] || !launch.groups[1] || !launch.groups[2];
  return reinterpret_cast<PyObject*>(p);
}

int init_prepared_launch(PyObject* module) {
  Prepared_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &prepared_spec, nullptr));
  return Prepared_Type ? 0 : -1;
}

}  // namespace hcq
