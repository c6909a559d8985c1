// kernel[groups, items](...): the launch of a portable kernel whose types, device and size were launched before.
//
// A kernel keeps a few entries: what each argument was, and the program it led to. A launch that an entry fits is
// packed and queued here; anything else - other types, arrays, names, a capture - goes to Python (hcq.kernels.launch),
// which checks and explains, and adds an entry. So nothing here raises for a user's mistake.
#include "python/kernel_launch.hpp"

#include <cstring>

#include "python/watch.hpp"

namespace hcq {

namespace {
struct LauncherObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* kernel;
  LaunchSizes sizes;
};
PyTypeObject* Launcher_Type;
LauncherObject* launcher_of(PyObject* o) { return reinterpret_cast<LauncherObject*>(o); }

PyObject *k_stream, *k_wait, *k_launch, *k_prepare;  // interned

// The way through Python, which knows every case.
PyObject* launch_slowly(LauncherObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names,
                        PyObject* method) {
  Ref groups(dims(self->sizes.groups)), items(dims(self->sizes.items)), given(PyTuple_New(count)), named(PyDict_New());
  if (!groups || !items || !given || !named) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(given.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0, n = names ? PyTuple_GET_SIZE(names) : 0; i < n; ++i)
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(names, i), args[count + i]) < 0) return nullptr;
  return PyObject_CallMethodObjArgs(self->kernel, method, groups.get(), items.get(), given.get(), named.get(), nullptr);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  LauncherObject* self = launcher_of(object);
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  PyObject *stream = nullptr, *wait_object = nullptr;
  for (Py_ssize_t i = 0, n = names ? PyTuple_GET_SIZE(names) : 0; i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (name == k_stream)
      stream = args[count + i];
    else if (name == k_wait)
      wait_object = args[count + i];
    else
      return launch_slowly(self, args, count, names, k_launch);
  }
  int wait = truth(wait_object);
  if (wait < 0) return nullptr;
  if (watching()) return launch_slowly(self, args, count, names, k_launch);
  auto& entries = *kernel_of(self->kernel)->entries;
  PackedLaunch packed;
  for (size_t at = 0; at < entries.size(); ++at) {
    KernelEntry& entry = *entries[at];
    ProgramObject* program = entry.program;
    if (entry.params.size() != static_cast<size_t>(count) || entry_gone(entry)) continue;
    if (!entry_pack(entry, self->sizes, args, &packed)) continue;
    // Waiting for room in the queue, as the check, lets others run, who may change the entries.
    Ref kept(Py_NewRef(reinterpret_cast<PyObject*>(program)));
    if (!entry_knows(entry, packed.key)) {
      if (!entry_sizes_fit(entry, self->sizes)) break;
      std::shared_ptr<KernelEntry> held = entries[at];
      if (!entry_check(*held, self->sizes, args, packed.key)) return nullptr;
      if (!entry_pack(*held, self->sizes, args, &packed)) break;  // whoever ran meanwhile has freed a buffer
    }
    if (const Program& made = *program->program; made.ready) {
      std::shared_ptr<KernelEntry> held = entries[at];
      Ready ready = made.ready(&made, self->sizes.items);
      if (ready == Ready::failed) return nullptr;
      if (ready == Ready::now && !entry_pack(*held, self->sizes, args, &packed)) break;  // others ran meanwhile
    }
    if (!program_usable(program)) return nullptr;
    if (!self->sizes.groups[0] || !self->sizes.groups[1] || !self->sizes.groups[2]) return nothing(wait);
    Launch launch{program->program, program->device, {}, {}, packed.bytes, program->program->kernargs_size};
    std::memcpy(launch.groups, self->sizes.groups, sizeof launch.groups);
    std::memcpy(launch.items, self->sizes.items, sizeof launch.items);
    return enqueue(launch, stream, wait, false);
  }
  return launch_slowly(self, args, count, names, k_launch);
}

PyObject* launcher_prepare(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return launch_slowly(launcher_of(self), args, count, names, k_prepare);
}

void launcher_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(launcher_of(object)->kernel);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}
int launcher_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(launcher_of(object)->kernel);
  return 0;
}
PyObject* launcher_groups(PyObject* self, void*) { return dims(launcher_of(self)->sizes.groups); }
PyObject* launcher_items(PyObject* self, void*) { return dims(launcher_of(self)->sizes.items); }
PyObject* launcher_kernel(PyObject* self, void*) { return Py_NewRef(launcher_of(self)->kernel); }
PyObject* launcher_repr(PyObject* self) {
  Ref groups(dims(launcher_of(self)->sizes.groups)), items(dims(launcher_of(self)->sizes.items));
  if (!groups || !items) return nullptr;
  return PyUnicode_FromFormat("<%R[%R, %R]>", launcher_of(self)->kernel, groups.get(), items.get());
}

PyMethodDef launcher_methods[] = {
    {"prepare", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(launcher_prepare)), METH_FASTCALL | METH_KEYWORDS,
     "prepare(*args, device=None, **named)\n--\n\n"
     "A callable that launches with these arguments, checked once; it takes wait= and stream=, and owns the buffers."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef launcher_getset[] = {{"kernel", launcher_kernel, nullptr, "The kernel.", nullptr},
                                 {"groups", launcher_groups, nullptr, "Work-groups, (x, y, z).", nullptr},
                                 {"items", launcher_items, nullptr, "Work-items a group, (x, y, z).", nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(LauncherObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot launcher_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(launcher_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(launcher_traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(launcher_repr)},
    {Py_tp_methods, launcher_methods},
    {Py_tp_getset, launcher_getset},
    {Py_tp_members, launcher_members},
    {Py_tp_doc,
     const_cast<char*>(
         "A kernel with sizes. Call it with the function's arguments, and stream=, wait=, device=: queues the\n"
         "launch and returns None, or with wait the seconds it took. Buffers may lie on any device, which is\n"
         "where it runs; with NumPy arrays it runs on `device`, or the default one, and has finished when it\n"
         "returns. Raises CompileError at the first launch of new types, LaunchError for what can't be\n"
         "launched, before anything is queued.")},
    {0, nullptr}};
PyType_Spec launcher_spec = {
    "hcq._native.KernelLauncher", sizeof(LauncherObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    launcher_slots};
}  // namespace

PyObject* launcher_new(PyObject* kernel, const LaunchSizes& sizes) {
  auto* self = PyObject_GC_New(LauncherObject, Launcher_Type);
  if (!self) return nullptr;
  self->vectorcall = call;
  self->kernel = Py_NewRef(kernel);
  self->sizes = sizes;
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

int init_kernel_launch(PyObject* module) {
  k_stream = PyUnicode_InternFromString("stream");
  k_wait = PyUnicode_InternFromString("wait");
  k_launch = PyUnicode_InternFromString("_launch");
  k_prepare = PyUnicode_InternFromString("_prepare");
  if (!k_stream || !k_wait || !k_launch || !k_prepare) return -1;
  Launcher_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &launcher_spec, nullptr));
  return Launcher_Type ? PyModule_AddType(module, Launcher_Type) : -1;
}

}  // namespace hcq
