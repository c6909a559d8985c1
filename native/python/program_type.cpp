// _native.Program and prepared launches: one call that checks arguments and writes one packet.
#include <cstring>
#include <new>

#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "memory/memory.hpp"
#include "python/arguments.hpp"

namespace hcq {

PyTypeObject* Program_Type;

namespace {
PyObject *k_global_size, *k_local_size, *k_vals, *k_wait, *k_stream;  // interned

ProgramObject* cast(PyObject* o) { return reinterpret_cast<ProgramObject*>(o); }

struct Keywords {
  PyObject *global_size = nullptr, *local_size = nullptr, *vals = nullptr, *wait = nullptr, *stream = nullptr;
};

bool parse_keywords(PyObject* const* values, PyObject* names, Keywords* out) {
  for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(names); i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    // Names in source code are interned: comparing pointers is enough, but for names made at run time.
    if (name == k_global_size)
      out->global_size = values[i];
    else if (name == k_local_size)
      out->local_size = values[i];
    else if (name == k_wait)
      out->wait = values[i];
    else if (name == k_vals)
      out->vals = values[i];
    else if (name == k_stream)
      out->stream = values[i];
    else if (PyUnicode_Compare(name, k_global_size) == 0)
      out->global_size = values[i];
    else if (PyUnicode_Compare(name, k_local_size) == 0)
      out->local_size = values[i];
    else if (PyUnicode_Compare(name, k_wait) == 0)
      out->wait = values[i];
    else if (PyUnicode_Compare(name, k_vals) == 0)
      out->vals = values[i];
    else if (PyUnicode_Compare(name, k_stream) == 0)
      out->stream = values[i];
    else {
      PyErr_Format(PyExc_TypeError,
                   "a launch takes global_size, local_size, vals, wait and stream, not the keyword argument '%U'",
                   name);
      return false;
    }
  }
  return true;
}

// Where a launch goes: the device's own order, or a stream's.
bool choose_lane(DeviceObject* device, PyObject* stream, Queue** queue, Timeline** timeline) {
  Device* d = device->device;
  if (!stream || stream == Py_None) {
    *queue = device_queue(d, QueueKind::compute);
    *timeline = &d->timeline;
    return true;
  }
  if (!PyObject_TypeCheck(stream, Stream_Type) || reinterpret_cast<StreamObject*>(stream)->device != d) {
    raise("LaunchError", "stream must be one that " + d->name + " gave (dev.stream())");
    return false;
  }
  *queue = reinterpret_cast<StreamObject*>(stream)->queue;
  *timeline = reinterpret_cast<StreamObject*>(stream)->timeline;
  return true;
}

// Ends a launch that waits: returns seconds on the device, or nullptr with the failure set.
PyObject* finish_wait(Device* d, Queue* q, uint64_t position, Timing* timing, bool seconds) {
  step(q, true, now_ns() + 20000);
  bool finished = q->done.value.load(std::memory_order_acquire) >= position;
  if (!finished) {
    uint64_t ms = config_number("TIMEOUT_MS");
    Waited waited = Waited::interrupted;
    if (!PyErr_Occurred()) waited = wait_commands(q, position, deadline_after_ms(ms));
    if (waited == Waited::failed) raise_fault(d->fault.load(std::memory_order_acquire));
    if (waited == Waited::timeout)
      raise("SignalTimeout", "the launch did not finish within " + std::to_string(ms) + " ms: " + describe_queue(q));
    finished = waited == Waited::reached;
  }
  double time = 0;
  bool failed = false;
  if (timing) {
    if (finished) {
      time = static_cast<double>(timing->end - timing->start) * 1e-9;
      failed = timing->end == 0;
    }
    timing->release();
  }
  if (!finished) return nullptr;
  run_retired();
  if (uint64_t error = d->fault.load(std::memory_order_acquire)) return raise_fault(error);
  if (failed)
    if (uint64_t error = d->reported.exchange(0, std::memory_order_acq_rel)) return raise_fault(error);
  if (!seconds) Py_RETURN_NONE;
  return PyFloat_FromDouble(time);
}

struct Launch {
  Program* program;
  DeviceObject* device;
  uint32_t groups[3], items[3];
  const uint8_t* arguments;
  uint32_t arguments_size;
};

// Writes the packet. `wait`: also until it has finished, returning seconds; `hold`: the same without a result.
PyObject* enqueue(const Launch& launch, PyObject* stream, bool wait, bool hold) {
  Device* d = launch.device->device;
  Queue* q;
  Timeline* t;
  if (!choose_lane(launch.device, stream, &q, &t)) return nullptr;
  if (__builtin_expect(launch.device->lock_owner != 0, 0) && !timeline_lock_free(launch.device)) return nullptr;
  if (__builtin_expect(d->injections.load(std::memory_order_relaxed) != 0, 0)) {
    if (uint64_t error = injected(d, InjectWhat::submit, launch.program->name.c_str())) {
      device_lose(d, error);
      return raise_fault(error);
    }
  }
  Timing* timing = wait ? new (std::nothrow) Timing : nullptr;
  if (wait && !timing) return PyErr_NoMemory();
  uint32_t units = 1 + (timing ? 1 : 0) + (launch.arguments_size + kUnit - 1) / kUnit;
  if (!reserve(q, units, units, t)) {
    delete timing;
    return nullptr;
  }
  auto* p = reinterpret_cast<ExecPacket*>(queue_write(q, units));
  uint64_t value = t->next.load(std::memory_order_relaxed);  // under the timeline's lock, as the next line
  t->next.store(value + 1, std::memory_order_relaxed);
  p->header = {PacketType::exec, static_cast<uint16_t>(units),
               kEndOfSubmit | kWaitPrevious | kCompletes | (timing ? static_cast<uint32_t>(kTimed) : 0u), ++q->records};
  p->program = launch.program;
  p->signal = t->signal;
  p->value = value;
  std::memcpy(p->groups, launch.groups, sizeof p->groups);
  std::memcpy(p->items, launch.items, sizeof p->items);
  if (timing) reinterpret_cast<ExecExtra*>(p + 1)->timing = timing;
  std::memcpy(inline_arguments(p), launch.arguments, launch.arguments_size);
  if (t->signal->setter.load(std::memory_order_relaxed) != q) t->signal->setter.store(q, std::memory_order_relaxed);
  queue_publish(q);
  uint64_t position = q->write_position;
  q->produce.unlock();
  t->lock.unlock();
  if (wait || hold) return finish_wait(d, q, position, timing, wait);
  doorbell(q);
  run_retired();
  Py_RETURN_NONE;
}

// A launch over arrays whose wait ended early may still run: what it works on lives until the queue has passed it.
void keep_until_passed(PyObject* object) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (object) retire_object(object);
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

PyObject* kept_arguments(PyObject* const* args, Py_ssize_t count, Arguments* arguments) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* all = PyTuple_New(count + 1);
  for (Py_ssize_t i = 0; all && i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(all, i, args[i]);
  }
  // Without memory for the tuple the arguments are leaked rather than used after their end.
  for (Py_ssize_t i = 0; !all && i < count; ++i) Py_INCREF(args[i]);
  PyObject* copies = arguments->copies.release();
  if (all) PyTuple_SET_ITEM(all, count, copies ? copies : Py_NewRef(Py_None));
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return all;
}

PyObject* nothing(bool wait) {
  if (wait) return PyFloat_FromDouble(0.0);
  Py_RETURN_NONE;
}

bool usable(ProgramObject* self) {
  if (__builtin_expect(!self->program, 0)) {
    PyErr_SetString(PyExc_RuntimeError, "this program was not initialised");
    return false;
  }
  return device_usable(self->device->device);
}

int truth(PyObject* o) {
  if (!o || o == Py_False || o == Py_None) return 0;
  return o == Py_True ? 1 : PyObject_IsTrue(o);
}

PyObject* call(PyObject* self_object, PyObject* const* args, size_t nargsf, PyObject* names) {
  ProgramObject* self = cast(self_object);
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  Keywords k;
  if (names && !parse_keywords(args + count, names, &k)) return nullptr;
  if (!usable(self)) return nullptr;
  Program& program = *self->program;
  Launch launch{&program, self->device, {}, {}, nullptr, 0};
  const Limits& limits = self->device->device->limits;
  Arguments arguments;
  int wait = truth(k.wait);
  if (wait < 0 || !parse_groups(k.global_size, limits, launch.groups) ||
      !parse_items(k.local_size, limits, launch.items) || !check_sizes(program, launch.groups, launch.items) ||
      !pack_arguments(program, args, count, k.vals, &arguments))
    return nullptr;
  if (!launch.groups[0] || !launch.groups[1] || !launch.groups[2]) return nothing(wait);
  launch.arguments = arguments.bytes;
  launch.arguments_size = arguments.size;
  PyObject* result = enqueue(launch, k.stream, wait, arguments.arrays);
  if (!result && arguments.arrays) keep_until_passed(kept_arguments(args, count, &arguments));
  return result;
}

// --- prepared launches ---------------------------------------------------------------------------------------------
struct PreparedObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* program;  // ProgramObject
  PyObject* held;     // tuple of the buffers (and their handles)
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
  if (self->empty) return nothing(wait);
  PyObject* result = enqueue(self->launch, k.stream, wait, self->arrays);
  if (!result && self->arrays) {
    Py_INCREF(object);
    keep_until_passed(object);
  }
  return result;
}

void prepared_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  PyObject_GC_UnTrack(object);
  PyMem_Free(self->arguments);
  Py_XDECREF(self->program);
  Py_XDECREF(self->held);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

int prepared_traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<PreparedObject*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->program);
  Py_VISIT(self->held);
  return 0;
}

PyObject* prepare(PyObject* self_object, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  ProgramObject* self = cast(self_object);
  Keywords k;
  if (names && !parse_keywords(args + count, names, &k)) return nullptr;
  if (k.wait || k.stream) return PyErr_Format(PyExc_TypeError, "wait and stream are given when the launch is called");
  if (!usable(self)) return nullptr;
  Launch launch{self->program, self->device, {}, {}, nullptr, 0};
  const Limits& limits = self->device->device->limits;
  Arguments arguments;
  if (!parse_groups(k.global_size, limits, launch.groups) || !parse_items(k.local_size, limits, launch.items) ||
      !check_sizes(*self->program, launch.groups, launch.items) ||
      !pack_arguments(*self->program, args, count, k.vals, &arguments))
    return nullptr;
  Ref held(PyTuple_New(2 * count + 1));
  if (!held) return nullptr;
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

PyMemberDef prepared_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PreparedObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot prepared_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(prepared_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(prepared_traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, prepared_members},
    {Py_tp_doc,
     const_cast<char*>("A launch with everything bound: call it with wait= and stream=. Owns what it was given.")},
    {0, nullptr}};
PyType_Spec prepared_spec = {
    "hcq._native.PreparedLaunch", sizeof(PreparedObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    prepared_slots};

// --- kernargs ------------------------------------------------------------------------------------------------------
PyObject* fill_kernargs(PyObject* self_object, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"bufs", "vals", "kernargs_ptr", nullptr};
  ProgramObject* self = cast(self_object);
  PyObject *bufs, *vals = nullptr, *pointer = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &bufs, &vals, &pointer) ||
      !usable(self))
    return nullptr;
  Ref list(PySequence_Tuple(bufs));  // a copy: taking the address of one may change the list
  if (!list) return nullptr;
  Arguments arguments;
  if (!pack_arguments(*self->program, &PyTuple_GET_ITEM(list.get(), 0), PyTuple_GET_SIZE(list.get()), vals, &arguments))
    return nullptr;
  if (arguments.arrays)
    return raise("LaunchError",
                 self->program->name + ": kernargs of a queue take buffers; wrap arrays with hcq.array(a, copy=False)");
  uint64_t address;
  if (pointer && pointer != Py_None) {
    if (!parse_u64(pointer, &address, "kernargs_ptr")) return nullptr;
  } else {
    try {
      address = reinterpret_cast<uint64_t>(self->device->device->kernargs.take(arguments.size));
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    }
  }
  std::memcpy(reinterpret_cast<void*>(address), arguments.bytes, arguments.size);
  return PyLong_FromUnsignedLongLong(address);
}

// --- the program ---------------------------------------------------------------------------------------------------
PyObject* program_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", "name", "lib", nullptr};
  PyObject *device, *name, *lib;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUO", const_cast<char**>(names), &device, &name, &lib))
    return nullptr;
  Device* d = device_of(device);
  if (!d || !device_usable(d)) return nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  Program* program;
  if (lib == Py_None) {
    program = program_nothing(text);
  } else {
    Py_buffer view;
    if (PyObject_GetBuffer(lib, &view, PyBUF_SIMPLE) < 0) return nullptr;
    std::string error;
    program = program_load(static_cast<const uint8_t*>(view.buf), static_cast<size_t>(view.len), text, &error);
    PyBuffer_Release(&view);
    if (!program) return raise("InvalidProgram", error);
  }
  auto* self = cast(type->tp_alloc(type, 0));
  if (!self) {
    program_release(program);
    return nullptr;
  }
  self->vectorcall = call;
  self->program = program;
  Py_INCREF(device);
  self->device = reinterpret_cast<DeviceObject*>(device);
  Py_INCREF(name);
  self->name = name;
  return reinterpret_cast<PyObject*>(self);
}

int program_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(reinterpret_cast<PyObject*>(cast(object)->device));
  return 0;
}

int program_clear(PyObject*) { return 0; }  // the device reference is needed as long as the program can be called

void program_dealloc(PyObject* object) {
  ProgramObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (self->program && self->program->generation == g_generation) program_release(self->program);
  Py_XDECREF(reinterpret_cast<PyObject*>(self->device));
  Py_XDECREF(self->name);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* get_name(PyObject* self, void*) {
  Py_INCREF(cast(self)->name);
  return cast(self)->name;
}
PyObject* get_device(PyObject* self, void*) {
  auto* d = reinterpret_cast<PyObject*>(cast(self)->device);
  Py_INCREF(d);
  return d;
}
PyObject* get_kernargs_size(PyObject* self, void*) {
  Program* p = cast(self)->program;
  return PyLong_FromUnsignedLong(p->typed ? p->kernargs_size : kMaxInlineArguments);
}
PyObject* get_zero(PyObject*, void*) { return PyLong_FromLong(0); }
PyObject* get_signature(PyObject* self, void*) {
  Program* p = cast(self)->program;
  if (!p->typed) Py_RETURN_NONE;
  Ref out(PyTuple_New(static_cast<Py_ssize_t>(p->params.size())));
  if (!out) return nullptr;
  for (size_t i = 0; i < p->params.size(); ++i) {
    static const char* kinds[] = {"pointer", "int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32",
                                  "int64",   "uint64", "float16", "bfloat16", "float32", "float64", "bool"};
    PyObject* item = Py_BuildValue("(ss)", kinds[static_cast<int>(p->params[i].kind)], p->params[i].name.c_str());
    if (!item) return nullptr;
    PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), item);
  }
  return out.release();
}

PyMethodDef methods[] = {
    {"prepare", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(prepare)), METH_FASTCALL | METH_KEYWORDS,
     "prepare(*bufs, global_size=(1, 1, 1), local_size=(1, 1, 1), vals=())\n--\n\n"
     "A callable that launches with these arguments, checked once; it takes wait= and stream=, and owns the buffers."},
    {"fill_kernargs", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(fill_kernargs)),
     METH_VARARGS | METH_KEYWORDS,
     "fill_kernargs(bufs, vals=(), kernargs_ptr=None)\n--\n\n"
     "Write the arguments for a queue's exec and return their address: at kernargs_ptr, which the caller keeps, or in\n"
     "memory of the device that stays until 16 MiB more were filled and what was queued by then has finished."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {
    {"name", get_name, nullptr, "The function's name.", nullptr},
    {"device", get_device, nullptr, "The device it was loaded for.", nullptr},
    {"kernargs_alloc_size", get_kernargs_size, nullptr, "Bytes of kernargs memory that a launch needs.", nullptr},
    {"kernargs_args_offset", get_zero, nullptr, "Where the arguments begin in that memory.", nullptr},
    {"signature", get_signature, nullptr, "((type, name), ...) of the parameters; None where none were recorded.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(ProgramObject, vectorcall), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(ProgramObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(program_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(program_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(program_traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(program_clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getset},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("A loaded function on a device of native command queues.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.Program", sizeof(ProgramObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

// Python 3.11 does not hand the vectorcall flag down to classes made in Python; from 3.12 on it does.
PyObject* inherit_vectorcall(PyObject*, PyObject* cls) {
  if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), Program_Type))
    return PyErr_Format(PyExc_TypeError, "expected a subclass of Program");
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  if (type->tp_call == Program_Type->tp_call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  Py_INCREF(cls);
  return cls;
}
PyMethodDef functions[] = {
    {"inherit_vectorcall", inherit_vectorcall, METH_O,
     "inherit_vectorcall(cls)\n--\n\nLets a subclass of Program be called as fast as Program. Returns cls."},
    {nullptr, nullptr, 0, nullptr}};
}  // namespace

int init_program(PyObject* module) {
  k_global_size = PyUnicode_InternFromString("global_size");
  k_local_size = PyUnicode_InternFromString("local_size");
  k_vals = PyUnicode_InternFromString("vals");
  k_wait = PyUnicode_InternFromString("wait");
  k_stream = PyUnicode_InternFromString("stream");
  Program_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  Prepared_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &prepared_spec, nullptr));
  if (!Program_Type || !Prepared_Type || PyModule_AddFunctions(module, functions) < 0) return -1;
  return PyModule_AddType(module, Program_Type);
}

}  // namespace hcq
