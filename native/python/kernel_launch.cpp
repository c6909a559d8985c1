// kernel[groups, items](...): the launch of a portable kernel whose types, device and size were launched before.
//
// A kernel keeps a few entries: what each argument was, and the program it led to. A launch that an entry fits is
// packed and queued here; anything else - other types, arrays, names, a capture - goes to Python (hcq.kernels.launch),
// which checks and explains, and adds an entry. So nothing here raises for a user's mistake.
#include "python/kernel_launch.hpp"

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "memory/memory.hpp"
#include "python/launch.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
constexpr size_t kEntries = 8;     // types and devices that a kernel keeps at hand
constexpr size_t kLaunches = 8;    // sizes of one entry that were found to stay inside the buffers
constexpr size_t kMaxParams = 64;  // more go to Python

enum class Kind : uint8_t { buffer, constant, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64 };

struct Param {
  Kind kind;
  bool relevant;    // whether an access depends on the number
  uint32_t offset;  // of a number, in the kernargs
  Ref object;       // the dtype of a buffer; a constant
};

struct Entry {
  ProgramObject* program = nullptr;  // strong
  Ref device;                        // the name of the device that buffers must lie on
  Ref check;                         // check(groups, items, sizes, numbers): raises where a launch leaves a buffer
  std::vector<Param> params;
  uint32_t buffers = 0;
  std::vector<uint64_t> known;  // launches that were checked: groups, items, lengths, relevant numbers of each
  size_t width = 0, next = 0;
  ~Entry() { Py_XDECREF(reinterpret_cast<PyObject*>(program)); }
};

struct KernelObject {
  PyObject_HEAD std::vector<std::shared_ptr<Entry>>* entries;  // under the GIL
  PyObject* weakrefs;
};
PyTypeObject* Kernel_Type;
KernelObject* kernel_of(PyObject* o) { return reinterpret_cast<KernelObject*>(o); }

struct LauncherObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* kernel;
  uint32_t groups[3], items[3];
};
PyTypeObject* Launcher_Type;
LauncherObject* launcher_of(PyObject* o) { return reinterpret_cast<LauncherObject*>(o); }

PyObject *k_stream, *k_wait, *k_launch, *k_prepare, *k_sizes;  // interned

PyObject* dims(const uint32_t v[3]) { return Py_BuildValue("(III)", v[0], v[1], v[2]); }

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

// Fills a number's place in the kernargs. False where that needs more thought: another type, too large, not exact.
bool put_number(Kind kind, PyObject* v, uint8_t* out, uint64_t* seen) {
  if (kind == Kind::f32 || kind == Kind::f64) {
    double d;
    if (PyFloat_CheckExact(v)) {
      d = PyFloat_AS_DOUBLE(v);
    } else if (PyLong_CheckExact(v)) {
      int overflow;
      long n = PyLong_AsLongAndOverflow(v, &overflow);
      if (overflow || n > (1l << 24) || n < -(1l << 24)) return false;
      d = static_cast<double>(n);
    } else {
      return false;
    }
    std::memcpy(seen, &d, 8);
    if (kind == Kind::f64) {
      std::memcpy(out, &d, 8);
      return true;
    }
    float f = static_cast<float>(d);
    if (std::isinf(f) && !std::isinf(d)) return false;
    std::memcpy(out, &f, 4);
    return true;
  }
  if (!PyLong_CheckExact(v)) return false;
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
  if (overflow) return false;
  *seen = static_cast<uint64_t>(n);
  auto put = [&](long long low, long long high, size_t size) {
    if (n < low || n > high) return false;
    std::memcpy(out, &n, size);  // little endian
    return true;
  };
  switch (kind) {
    case Kind::i8:
      return put(INT8_MIN, INT8_MAX, 1);
    case Kind::u8:
      return put(0, UINT8_MAX, 1);
    case Kind::i16:
      return put(INT16_MIN, INT16_MAX, 2);
    case Kind::u16:
      return put(0, UINT16_MAX, 2);
    case Kind::i32:
      return put(INT32_MIN, INT32_MAX, 4);
    case Kind::u32:
      return put(0, UINT32_MAX, 4);
    case Kind::u64:
      return put(0, INT64_MAX, 8);
    default:
      return put(INT64_MIN, INT64_MAX, 8);
  }
}

// Whether a constant is the same as the entry's: the same object, or an equal whole number or text.
bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (PyLong_CheckExact(a) && PyLong_CheckExact(b)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
}

// One launch as an entry sees it.
struct Packed {
  uint64_t key[6 + kMaxParams];
  alignas(64) uint8_t bytes[(kMaxParams + 1) * 8];
};

// Packs arguments that the entry fits.
bool pack(const Entry& entry, const LauncherObject* self, PyObject* const* args, Packed* out) {
  uint32_t buffer = 0;
  uint64_t* key = out->key;
  for (int d = 0; d < 3; ++d) *key++ = self->groups[d];
  for (int d = 0; d < 3; ++d) *key++ = self->items[d];
  size_t i = 0;
  for (const Param& param : entry.params) {
    PyObject* o = args[i++];
    if (param.kind == Kind::buffer) {
      if (!buffer_check(o)) return false;
      auto* b = reinterpret_cast<BufferObject*>(o);
      PyObject* handle = b->buf;
      if (!handle || b->dtype != param.object.get() || (b->base ? b->base->closed : b->closed) ||
          b->generation != g_generation || !hcq_buffer_check(handle))
        return false;
      if (b->device != entry.device.get() && PyUnicode_Compare(b->device, entry.device.get()) != 0) return false;
      uint64_t address = reinterpret_cast<HCQBufferObject*>(handle)->va_addr;
      std::memcpy(out->bytes + 8 * buffer++, &address, 8);
      *key++ = b->size;
    } else if (param.kind == Kind::constant) {
      if (!same_constant(o, param.object.get())) return false;
    } else {
      uint64_t seen;
      if (!put_number(param.kind, o, out->bytes + param.offset, &seen)) return false;
      if (param.relevant) *key++ = seen;
    }
  }
  return true;
}

bool is_known(const Entry& entry, const uint64_t* key) {
  for (size_t at = 0; at < entry.known.size(); at += entry.width)
    if (std::memcmp(&entry.known[at], key, entry.width * sizeof *key) == 0) return true;
  return false;
}

// Whether an entry's device was closed, or is the parent's of a forked process.
bool is_gone(const Entry& entry) {
  // relaxed: closing sets it with the GIL
  return entry.program->device->device->closed.load(std::memory_order_relaxed) ||
         entry.program->program->generation != g_generation;
}

// Whether the device takes the sizes, as Python checks them (and explains them, when it is asked next).
bool sizes_fit(const Entry& entry, const LauncherObject* self) {
  const Limits& limits = entry.program->device->device->limits;
  uint64_t total = 1;
  for (int d = 0; d < 3; ++d) {
    if (self->groups[d] > limits.groups[d] || self->items[d] > limits.items[d] || self->items[d] == 0) return false;
    if (static_cast<uint64_t>(self->groups[d]) * self->items[d] > 0x7fffffff) return false;
    total *= self->items[d];
  }
  return total <= limits.group_items;
}

// Asks Python whether a launch of these sizes stays inside the buffers, and keeps the answer. False: an exception.
bool check(Entry& entry, const LauncherObject* self, PyObject* const* args, const uint64_t* key) {
  Ref groups(dims(self->groups)), items(dims(self->items)), sizes(PyList_New(0)), numbers(PyList_New(0));
  if (!groups || !items || !sizes || !numbers) return false;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    Kind kind = entry.params[i].kind;
    if (kind == Kind::constant) continue;
    Ref item(kind == Kind::buffer ? PyLong_FromUnsignedLongLong(reinterpret_cast<BufferObject*>(args[i])->size)
                                  : Py_NewRef(args[i]));
    if (!item || PyList_Append(kind == Kind::buffer ? sizes.get() : numbers.get(), item.get()) < 0) return false;
  }
  Ref done(
      PyObject_CallFunctionObjArgs(entry.check.get(), groups.get(), items.get(), sizes.get(), numbers.get(), nullptr));
  if (!done) return false;
  try {
    if (entry.known.size() < kLaunches * entry.width)
      entry.known.insert(entry.known.end(), key, key + entry.width);
    else
      std::memcpy(&entry.known[entry.next++ % kLaunches * entry.width], key, entry.width * sizeof *key);
  } catch (const std::bad_alloc&) {
    entry.known.clear();  // it is checked again
  }
  return true;
}

// The way through Python, which knows every case.
PyObject* launch_slowly(LauncherObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names,
                        PyObject* method) {
  Ref groups(dims(self->groups)), items(dims(self->items)), given(PyTuple_New(count)), named(PyDict_New());
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
  Packed packed;
  for (size_t at = 0; at < entries.size(); ++at) {
    Entry& entry = *entries[at];
    ProgramObject* program = entry.program;
    if (entry.params.size() != static_cast<size_t>(count) || is_gone(entry)) continue;
    if (!pack(entry, self, args, &packed)) continue;
    // Waiting for room in the queue, as the check, lets others run, who may change the entries.
    Ref kept(Py_NewRef(reinterpret_cast<PyObject*>(program)));
    if (!is_known(entry, packed.key)) {
      if (!sizes_fit(entry, self)) break;
      std::shared_ptr<Entry> held = entries[at];
      if (!check(*held, self, args, packed.key)) return nullptr;
      if (!pack(*held, self, args, &packed)) break;  // whoever ran meanwhile has freed a buffer
    }
    if (!program_usable(program)) return nullptr;
    if (!self->groups[0] || !self->groups[1] || !self->groups[2]) return nothing(wait);
    Launch launch{program->program, program->device, {}, {}, packed.bytes, program->program->kernargs_size};
    std::memcpy(launch.groups, self->groups, sizeof launch.groups);
    std::memcpy(launch.items, self->items, sizeof launch.items);
    return enqueue(launch, stream, wait, false);
  }
  return launch_slowly(self, args, count, names, k_launch);
}

PyObject* launcher_prepare(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return launch_slowly(launcher_of(self), args, count, names, k_prepare);
}

PyObject* launcher_new(PyObject* kernel, const uint32_t groups[3], const uint32_t items[3]) {
  auto* self = PyObject_GC_New(LauncherObject, Launcher_Type);
  if (!self) return nullptr;
  self->vectorcall = call;
  self->kernel = Py_NewRef(kernel);
  std::memcpy(self->groups, groups, sizeof self->groups);
  std::memcpy(self->items, items, sizeof self->items);
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
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
PyObject* launcher_groups(PyObject* self, void*) { return dims(launcher_of(self)->groups); }
PyObject* launcher_items(PyObject* self, void*) { return dims(launcher_of(self)->items); }
PyObject* launcher_kernel(PyObject* self, void*) { return Py_NewRef(launcher_of(self)->kernel); }
PyObject* launcher_repr(PyObject* self) {
  Ref groups(dims(launcher_of(self)->groups)), items(dims(launcher_of(self)->items));
  if (!groups || !items) return nullptr;
  return PyUnicode_FromFormat("<%R[%R, %R]>", launcher_of(self)->kernel, groups.get(), items.get());
}

// --- the kernel ----------------------------------------------------------------------------------------------------
PyObject* kernel_subscript(PyObject* self, PyObject* key) {
  uint32_t groups[3], items[3];
  if (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2 && plain_size(PyTuple_GET_ITEM(key, 0), groups) &&
      plain_size(PyTuple_GET_ITEM(key, 1), items))
    return launcher_new(self, groups, items);
  Ref sizes(PyObject_CallMethodObjArgs(self, k_sizes, key, nullptr));
  if (!sizes) return nullptr;
  if (!PyTuple_Check(sizes.get()) || PyTuple_GET_SIZE(sizes.get()) != 2 ||
      !plain_size(PyTuple_GET_ITEM(sizes.get(), 0), groups) || !plain_size(PyTuple_GET_ITEM(sizes.get(), 1), items)) {
    PyErr_SetString(PyExc_TypeError, "_sizes must return two tuples of three whole numbers");
    return nullptr;
  }
  return launcher_new(self, groups, items);
}

bool parse_kind(PyObject* word, Kind* out) {
  static const char* words[] = {"buffer", "constant", "f32", "f64", "i8",  "u8",
                                "i16",    "u16",      "i32", "u32", "i64", "u64"};
  const char* text = PyUnicode_Check(word) ? PyUnicode_AsUTF8(word) : nullptr;
  if (!text) return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
    if (std::strcmp(text, words[i]) == 0) {
      *out = static_cast<Kind>(i);
      return true;
    }
  return false;
}

uint8_t size_of(Kind kind) {
  switch (kind) {
    case Kind::i8:
    case Kind::u8:
      return 1;
    case Kind::i16:
    case Kind::u16:
      return 2;
    case Kind::f32:
    case Kind::i32:
    case Kind::u32:
      return 4;
    default:
      return 8;
  }
}

// Whether an old entry is of no use beside a new one: of the same types, or gone.
bool replaces(const Entry& made, const Entry& old) {
  if (is_gone(old)) return true;
  if (old.program != made.program || old.params.size() != made.params.size()) return false;
  for (size_t i = 0; i < old.params.size(); ++i)
    if (old.params[i].object.get() != made.params[i].object.get()) return false;
  return true;
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
      count > kMaxParams || launched->program->kernargs_size > sizeof Packed::bytes)
    Py_RETURN_FALSE;
  const auto& taken = launched->program->params;
  try {
    auto entry = std::make_shared<Entry>();
    uint32_t number = launched->program->pointers;
    entry->width = 6;
    for (size_t i = 0; i < count; ++i) {
      PyObject *word, *value;
      int relevant;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(params, static_cast<Py_ssize_t>(i)), "OOp", &word, &value, &relevant))
        return nullptr;
      Param param{Kind::buffer, relevant != 0, 0, Ref(Py_NewRef(value))};
      if (!parse_kind(word, &param.kind)) Py_RETURN_FALSE;
      if (param.kind == Kind::buffer) {
        ++entry->buffers;
        ++entry->width;
      } else if (param.kind != Kind::constant) {
        if (number >= taken.size() || taken[number].size != size_of(param.kind)) Py_RETURN_FALSE;
        bool floating = taken[number].kind == ParamKind::f32 || taken[number].kind == ParamKind::f64;
        if (floating != (param.kind == Kind::f32 || param.kind == Kind::f64)) Py_RETURN_FALSE;
        param.offset = taken[number++].offset;
        entry->width += param.relevant;
      }
      entry->params.push_back(std::move(param));
    }
    if (!entry->buffers || entry->buffers != launched->program->pointers || number != taken.size()) Py_RETURN_FALSE;
    Py_INCREF(program);
    entry->program = launched;
    entry->device = Ref(Py_NewRef(device));
    entry->check = Ref(Py_NewRef(check));
    // Gone entries are let go after the vector has changed: that may run Python.
    std::vector<std::shared_ptr<Entry>> before;
    before.swap(*self->entries);
    self->entries->push_back(std::move(entry));
    for (auto& each : before)
      if (self->entries->size() < kEntries && !replaces(*self->entries->front(), *each)) self->entries->push_back(each);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_TRUE;
}

PyObject* kernel_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = kernel_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->entries = new (std::nothrow) std::vector<std::shared_ptr<Entry>>;
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
    std::vector<std::shared_ptr<Entry>> gone;
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

int init_kernel_launch(PyObject* module) {
  k_stream = PyUnicode_InternFromString("stream");
  k_wait = PyUnicode_InternFromString("wait");
  k_launch = PyUnicode_InternFromString("_launch");
  k_prepare = PyUnicode_InternFromString("_prepare");
  k_sizes = PyUnicode_InternFromString("_sizes");
  if (!k_stream || !k_wait || !k_launch || !k_prepare || !k_sizes) return -1;
  Kernel_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &kernel_spec, nullptr));
  Launcher_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &launcher_spec, nullptr));
  if (!Kernel_Type || !Launcher_Type || PyModule_AddType(module, Kernel_Type) < 0) return -1;
  return PyModule_AddType(module, Launcher_Type);
}

}  // namespace hcq
