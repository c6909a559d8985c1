// _native.Program: a loaded function on a device of native command queues, called to launch it.
#include <cstring>
#include <new>

#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "memory/memory.hpp"
#include "python/launch.hpp"
#include "python/watch.hpp"

namespace hcq {

PyTypeObject* Program_Type;

namespace {
ProgramObject* cast(PyObject* o) { return reinterpret_cast<ProgramObject*>(o); }

PyObject* call_watched(PyObject* program, PyObject* const* args, Py_ssize_t count, const Keywords& k,
                       const Launch& launch, bool wait, bool hold, bool empty) {
  Ref given(launch_given(*launch.program, args, count, k));
  return given ? enqueue_watched(program, given.get(), launch, k.stream, wait, hold, empty) : nullptr;
}

// A launch over arrays of the host, which an interface doesn't reach: in Python, by way of buffers.
PyObject* call_with_arrays(PyObject* program, PyObject* const* args, Py_ssize_t count, const Keywords& k) {
  Ref given(launch_given(*cast(program)->program, args, count, k));
  if (!given) return nullptr;
  PyObject* g = given.get();
  return PyObject_CallMethod(program, "_launch_arrays", "OOOOOO", PyTuple_GET_ITEM(g, 0), PyTuple_GET_ITEM(g, 2),
                             PyTuple_GET_ITEM(g, 3), PyTuple_GET_ITEM(g, 1), k.wait ? k.wait : Py_False,
                             k.stream ? k.stream : Py_None);
}

PyObject* call(PyObject* self_object, PyObject* const* args, size_t nargsf, PyObject* names) {
  ProgramObject* self = cast(self_object);
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  Keywords k;
  if (names && !parse_keywords(args + count, names, &k)) return nullptr;
  if (!program_usable(self)) return nullptr;
  Program& program = *self->program;
  Launch launch{&program, self->device, {}, {}, nullptr, 0};
  const Limits& limits = self->device->device->limits;
  Arguments arguments;
  arguments.accesses = &self->accesses;
  int wait = truth(k.wait);
  if (wait < 0 || !parse_groups(k.global_size, limits, launch.groups) ||
      !parse_items(k.local_size, limits, launch.items) || !check_sizes(program, launch.groups, launch.items) ||
      !pack_arguments(program, args, count, k.vals, &arguments))
    return nullptr;
  launch.arguments = arguments.bytes;
  launch.arguments_size = arguments.size;
  if (arguments.arrays && program.kind == EntryKind::elsewhere) return call_with_arrays(self_object, args, count, k);
  bool empty = !launch.groups[0] || !launch.groups[1] || !launch.groups[2];
  PyObject* result;
  if (watching())
    result = call_watched(self_object, args, count, k, launch, wait, arguments.arrays, empty);
  else
    result = empty ? nothing(wait) : enqueue(launch, k.stream, wait, arguments.arrays);
  if (!result && arguments.arrays) keep_until_passed(kept_arguments(args, count, &arguments));
  return result;
}

// --- kernargs ------------------------------------------------------------------------------------------------------
PyObject* fill_kernargs(PyObject* self_object, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"bufs", "vals", "kernargs_ptr", nullptr};
  ProgramObject* self = cast(self_object);
  PyObject *bufs, *vals = nullptr, *pointer = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &bufs, &vals, &pointer) ||
      !program_usable(self))
    return nullptr;
  Ref list(PySequence_Tuple(bufs));  // a copy: taking the address of one may change the list
  if (!list) return nullptr;
  Arguments arguments;
  arguments.accesses = &self->accesses;
  if (!pack_arguments(*self->program, &PyTuple_GET_ITEM(list.get(), 0), PyTuple_GET_SIZE(list.get()), vals, &arguments))
    return nullptr;
  if (arguments.arrays)
    return raise("LaunchError",
                 self->program->name + ": kernargs of a queue take buffers; wrap arrays with hcq.array(a, copy=False)");
  uint64_t address;
  if (pointer && pointer != Py_None) {
    if (!parse_u64(pointer, &address, "kernargs_ptr")) return nullptr;
    if (address < 4096 || address % 8) {  // no memory of anybody's is below the first page
      PyErr_Format(PyExc_ValueError, "kernargs_ptr must be the address of %u writable bytes, aligned to 8; got %llu",
                   arguments.size, static_cast<unsigned long long>(address));
      return nullptr;
    }
  } else {
    try {
      address = reinterpret_cast<uint64_t>(self->device->device->kernargs.take(arguments.size));
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    }
  }
  std::memcpy(reinterpret_cast<void*>(address), arguments.bytes, arguments.size);
  if (watching() && tell("filled", "(OOOK)", self_object, list.get(), vals ? vals : Py_None,
                         static_cast<unsigned long long>(address)) == Told::failed)
    return nullptr;
  return PyLong_FromUnsignedLongLong(address);
}

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
  } else if (PyCapsule_IsValid(lib, kProgramCapsule)) {  // made by an interface; ours now
    program = static_cast<Program*>(PyCapsule_GetPointer(lib, kProgramCapsule));
    if (PyCapsule_SetDestructor(lib, nullptr) < 0 || PyCapsule_SetName(lib, "taken") < 0) return nullptr;
    program->home = d->name;
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
  Py_XDECREF(self->accesses);
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
    static const char* kinds[] = {"pointer", "int8",   "uint8",   "int16",    "uint16",        "int32",      "uint32",
                                  "int64",   "uint64", "float16", "bfloat16", "float32",       "float64",    "bool",
                                  "bits8",   "bits16", "bits32",  "bits64",   "float8_e4m3fn", "float8_e5m2"};
    const Param& param = p->params[i];
    std::string kind =
        param.kind == ParamKind::structure ? "bytes" + std::to_string(param.size) : kinds[static_cast<int>(param.kind)];
    PyObject* item = Py_BuildValue("(ss)", kind.c_str(), param.name.c_str());
    if (!item) return nullptr;
    PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), item);
  }
  return out.release();
}

PyObject* get_accesses(PyObject* object, void*) {
  ProgramObject* self = cast(object);
  Program* p = self->program;
  if (!self->accesses && p && p->typed) {
    static const char* words[] = {nullptr, "r", "w", "rw"};
    Ref out(PyTuple_New(p->pointers));
    for (uint32_t i = 0; out && i < p->pointers; ++i) {
      const char* word = words[static_cast<int>(p->params[i].access)];
      PyObject* item = word ? PyUnicode_InternFromString(word) : Py_NewRef(Py_None);
      if (!item) return nullptr;
      PyTuple_SET_ITEM(out.get(), i, item);
    }
    if (!out) return nullptr;
    if (!self->accesses) self->accesses = out.release();
  }
  return Py_NewRef(self->accesses ? self->accesses : Py_None);
}

int set_accesses(PyObject* object, PyObject* value, void*) {
  ProgramObject* self = cast(object);
  Ref module(PyImport_ImportModule("hcq.queues.launch"));
  PyObject* pointers =
      self->program && self->program->typed ? PyLong_FromUnsignedLong(self->program->pointers) : Py_NewRef(Py_None);
  Ref count(pointers);
  Ref checked(module && count
                  ? PyObject_CallMethod(module.get(), "check_accesses", "OO", value ? value : Py_None, count.get())
                  : nullptr);
  if (!checked) return -1;
  PyObject* before = self->accesses;
  self->accesses = checked.get() == Py_None ? nullptr : checked.release();
  Py_XDECREF(before);
  return 0;
}

PyObject* estimate(PyObject* self, PyObject* items) {
  uint64_t count = PyLong_AsUnsignedLongLong(items);
  if (count == static_cast<uint64_t>(-1) && PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(cast(self)->program->estimate(count));
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
    {"_estimate", estimate, METH_O,
     "_estimate(items)\n--\n\nHow long so many work-items may take, in ns, over all threads, by the last run; 0 before "
     "the first."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {
    {"name", get_name, nullptr, "The function's name.", nullptr},
    {"device", get_device, nullptr, "The device it was loaded for.", nullptr},
    {"kernargs_alloc_size", get_kernargs_size, nullptr, "Bytes of kernargs memory that a launch needs.", nullptr},
    {"kernargs_args_offset", get_zero, nullptr, "Where the arguments begin in that memory.", nullptr},
    {"signature", get_signature, nullptr, "((type, name), ...) of the parameters; None where none were recorded.",
     nullptr},
    {"accesses", get_accesses, set_accesses,
     "What a launch does to each buffer: 'r', 'w', 'rw', or None where that is not known. May be assigned.", nullptr},
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
  if (init_launch(module) < 0 || init_prepared_launch(module) < 0) return -1;
  Program_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  if (!Program_Type || PyModule_AddFunctions(module, functions) < 0) return -1;
  return PyModule_AddType(module, Program_Type);
}

}  // namespace hcq
