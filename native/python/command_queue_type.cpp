// _native.CommandQueue: a list of commands, kept as packets, submitted as often as wanted. The CPU and NULL devices'
// compute and copy queues are subclasses that also derive from the contract's Python classes.
#include <cstdlib>
#include <new>

#include "core/names.hpp"
#include "core/retire.hpp"
#include "python/command_queue.hpp"

namespace hcq {

namespace {
using namespace command_queue;

PyTypeObject* CommandQueue_Type;

PyObject* queue_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = cast(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->generation = g_generation;
  self->commands = new (std::nothrow) Commands;
  if (self->commands) self->commands->held = PyList_New(0);
  if (!self->commands || !self->commands->held) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void bound_free(void* p) {
  auto* b = static_cast<BoundCommands*>(p);
  Freeing freeing;
  std::free(b->memory);
  delete b;
}

int queue_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (cast(self)->commands) Py_VISIT(cast(self)->commands->held);
  return 0;
}

int queue_clear(PyObject* self) {
  Commands* c = cast(self)->commands;
  if (!c || !c->held) return 0;
  // Its packets name what goes now: from here on it is an empty queue.
  c->packets.clear();
  c->offsets.clear();
  c->setters.clear();
  c->patches.clear();
  PyList_SetSlice(c->held, 0, PyList_GET_SIZE(c->held), nullptr);
  return 0;
}

void queue_dealloc(PyObject* object) {
  QueueObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (Commands* c = self->commands) {
    if (self->generation == g_generation) {
      if (c->bound) retire(bound_free, c->bound);  // a submit in flight reads it
      if (c->bound_device) device_release(c->bound_device);
    }
    Py_XDECREF(c->held);  // signals and programs stay until queued work has passed: their own release sees to it
    delete c;
  }
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* queue_repr(PyObject* self) {
  Commands* c = cast(self)->commands;
  const char* name = Py_TYPE(self)->tp_name;
  if (cast(self)->generation != g_generation) return PyUnicode_FromFormat("<%s inherited through fork>", name);
  if (c->bound)
    return PyUnicode_FromFormat("<%s: %zu commands, bound to %s>", name, c->offsets.size(),
                                c->bound_device->name.c_str());
  return PyUnicode_FromFormat("<%s: %zu commands>", name, c->offsets.size());
}

Py_ssize_t queue_length(PyObject* self) {
  Commands* c = usable(self);
  return c ? static_cast<Py_ssize_t>(c->offsets.size()) : -1;
}

#define FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f))
PyMethodDef methods[] = {
    {"signal", FAST(add_signal), METH_FASTCALL,
     "signal(signal, value)\n--\n\nSet the signal after all earlier commands."},
    {"wait", FAST(add_wait), METH_FASTCALL, "wait(signal, value)\n--\n\nGo on once the signal is at least `value`."},
    {"timestamp", add_timestamp, METH_O, "timestamp(signal)\n--\n\nWrite the time into the signal's timestamp."},
    {"memory_barrier", add_barrier, METH_NOARGS,
     "memory_barrier()\n--\n\nMake earlier writes by the host or a peer visible to later commands."},
    {"exec", FAST(add_exec), METH_VARARGS | METH_KEYWORDS,
     "exec(prg, kernargs, global_size=(1, 1, 1), local_size=(1, 1, 1))\n--\n\nRun a program with kernargs filled by\n"
     "prg.fill_kernargs. Raises LaunchError for sizes that the program or device refuses."},
    {"copy", FAST(add_copy), METH_VARARGS | METH_KEYWORDS,
     "copy(dest, src, nbytes)\n--\n\nCopy between two addresses."},
    {"update_signal", FAST(update_signal), METH_VARARGS | METH_KEYWORDS,
     "update_signal(cmd_idx, signal=None, value=None)\n--\n\nChange a signal command for the submits that follow."},
    {"update_wait", FAST(update_wait), METH_VARARGS | METH_KEYWORDS,
     "update_wait(cmd_idx, signal=None, value=None)\n--\n\nChange a wait command for the submits that follow."},
    {"update_exec", FAST(update_exec), METH_VARARGS | METH_KEYWORDS,
     "update_exec(cmd_idx, global_size=None, local_size=None)\n--\n\nChange an exec's sizes for the submits that "
     "follow."},
    {"update_copy", FAST(update_copy), METH_VARARGS | METH_KEYWORDS,
     "update_copy(cmd_idx, dest=None, src=None)\n--\n\nChange a copy's addresses for the submits that follow."},
    {"_label", label, METH_O, "_label(text)\n--\n\nWhat the last command, a copy, is called in traces."},
    {"bind", bind, METH_O,
     "bind(dev)\n--\n\nMove the commands into memory that the device reads itself; a submit then copies nothing."},
    {"submit", submit, METH_O,
     "submit(dev)\n--\n\nQueue all commands, as one. Doesn't wait for them; when the device's queue is full it waits "
     "for\n"
     "room and raises SignalTimeout with nothing queued at its deadline (HCQ_TIMEOUT_MS)."},
    {"_commands", commands, METH_NOARGS, "_commands()\n--\n\nWhat the queue holds: a list of (method, *arguments)."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(QueueObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(queue_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(queue_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(queue_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(queue_clear)},
    {Py_tp_repr, reinterpret_cast<void*>(queue_repr)},
    {Py_sq_length, reinterpret_cast<void*>(queue_length)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("A list of commands for a native queue. Not for several threads at once.")},
    {0, nullptr}};
PyType_Spec spec = {"hcq._native.CommandQueue", sizeof(QueueObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
}  // namespace

uint64_t submits_of(PyObject* queue) {
  return PyObject_TypeCheck(queue, CommandQueue_Type) ? cast(queue)->commands->submits : 0;
}

int init_command_queue(PyObject* module) {
  CommandQueue_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return CommandQueue_Type ? PyModule_AddType(module, CommandQueue_Type) : -1;
}

}  // namespace hcq
