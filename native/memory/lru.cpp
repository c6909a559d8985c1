// hcq.LRUAllocator: the cache in front of a driver's _alloc and _free, its limit, and the list of memory that queued
// work may still use. Everything here runs with the GIL, which _alloc, _free and waits may release: state is read anew
// after each of them, and no Python runs in the middle of a change.
#include "memory/lru.hpp"

#include <Python.h>
#include <structmember.h>
#include <time.h>

namespace hcq {

PyTypeObject* LRUAllocator_Type = nullptr;

namespace {

constexpr uint64_t kPendingBound = 256ull << 20;  // bytes that may wait for queued work before an allocation waits
constexpr uint64_t kPatience = 50'000'000;        // ns an allocation then waits for them
constexpr uint64_t kImpatience = 1'000'000'000;   // ns without such waits after one that was in vain
constexpr uint64_t kLastResort = 1'000'000'000;   // ns it waits where it would be refused otherwise
PyObject *g_alloc_method, *g_free_method;         // our own, as found in the type
LRUObject* g_allocators;                          // all of them, by next
PyObject* g_default_options;                      // BufferOptions()

PyObject* default_options() {
  if (g_default_options) return g_default_options;
  static PyObject* type;
  PyObject* cls = python_object("hcq.runtime.options", "BufferOptions", &type);
  if (cls) g_default_options = PyObject_CallNoArgs(cls);
  return g_default_options;
}

// Which kind of memory `options` asks for; false with an exception. Default options and None are kind 0.
bool kind_of(LRUState* s, PyObject* options, Kind* kind) {
  if (options == Py_None || options == g_default_options) {
    *kind = Kind{0, false};
    return true;
  }
  if (options == s->last_options) {
    *kind = s->last_kind;
    return true;
  }
  PyObject* plain = default_options();
  if (!plain || (!s->kinds && !(s->kinds = PyDict_New()))) return false;
  PyObject* kinds = Py_NewRef(s->kinds);  // hashing runs Python: another thread may replace it
  PyObject* found = PyDict_GetItemWithError(kinds, options);
  if (!found && PyErr_Occurred()) {
    Py_DECREF(kinds);
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    *kind = Kind{UINT32_MAX, true};  // not hashable: never cached
    return true;
  }
  if (!found) {
    int equal = PyObject_RichCompareBool(options, plain, Py_EQ);
    PyObject* flag = equal < 0 ? nullptr : PyObject_GetAttr(options, names.nolru);
    int nolru = flag ? PyObject_IsTrue(flag) : -1;
    Py_XDECREF(flag);
    if (equal >= 0 && !flag && PyErr_ExceptionMatches(PyExc_AttributeError)) {
      PyErr_Clear();
      nolru = 0;
    }
    PyObject* number = nolru < 0 ? nullptr : PyLong_FromLong(equal ? 0 : (++s->last_number << 1 | nolru));
    int failed = number ? PyDict_SetItem(kinds, options, number) : -1;
    Py_XDECREF(number);
    found = number;  // held by the dict
    if (failed) {
      Py_DECREF(kinds);
      return false;
    }
  }
  unsigned long number = PyLong_AsUnsignedLong(found);
  Py_DECREF(kinds);
  *kind = Kind{static_cast<uint32_t>(number >> 1), (number & 1) != 0};
  PyObject* before = s->last_options;
  s->last_options = Py_NewRef(options);
  s->last_kind = *kind;
  Py_XDECREF(before);
  return true;
}

// Forgets the options seen once nothing refers to their numbers, which are never given out twice.
void forget_kinds(LRUState* s) {
  if (s->cache.count() || !s->pending.empty()) return;
  PyObject *kinds = s->kinds, *last = s->last_options;
  s->kinds = s->last_options = nullptr;
  Py_XDECREF(kinds);
  Py_XDECREF(last);
}

PyObject* call_alloc(LRUObject* self, uint64_t size, PyObject* options) {
  PyObject* given = options == Py_None ? default_options() : options;
  PyObject* number = given ? PyLong_FromUnsignedLongLong(size) : nullptr;
  if (!number) return nullptr;
  PyObject* args[] = {reinterpret_cast<PyObject*>(self), number, given};
  PyObject* opaque = PyObject_VectorcallMethod(names.driver_alloc, args, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_DECREF(number);
  return opaque;
}

// Gives memory back to the driver; takes over both references.
int call_free(LRUObject* self, PyObject* opaque, PyObject* options) {
  PyObject* given = options == Py_None ? default_options() : options;
  int rc = -1;
  if (given) {
    PyObject* args[] = {reinterpret_cast<PyObject*>(self), opaque, given};
    PyObject* r = PyObject_VectorcallMethod(names.driver_free, args, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    rc = r ? 0 : -1;
    Py_XDECREF(r);
  }
  Py_DECREF(opaque);
  Py_DECREF(options);
  return rc;
}

// The position of a device whose queues are Python's: new reference, null where it has none or is idle. `lost` where it
// raises: then nothing more is to be done for memory of that device.
PyObject* position_of(LRUObject* self, bool* lost) {
  *lost = false;
  PyObject* device = self->device;
  if (!device || PyType_IsSubtype(Py_TYPE(self), HostAllocator_Type) ||
      !_PyType_Lookup(Py_TYPE(device), names.position))
    return nullptr;
  Py_INCREF(device);
  PyObject* position = PyObject_CallMethodNoArgs(device, names.position);
  Py_DECREF(device);
  if (!position) {
    PyErr_Clear();
    *lost = true;
    return nullptr;
  }
  if (position == Py_None) Py_CLEAR(position);
  return position;
}

// Whether the first pending free is due. Calls Python for devices with positions of their own.
bool first_is_due(LRUObject* self) {
  LRUState* s = self->state;
  PendingFree& first = s->pending.front();
  if (!first.stamp.passed()) return false;
  if (!first.position) return true;
  PyObject* device = self->device;
  if (!device) return true;
  uint64_t id = first.id;
  PyObject* position = Py_NewRef(first.position);
  Py_INCREF(device);
  PyObject* r = PyObject_CallMethodOneArg(device, names.passed, position);
  Py_DECREF(device);
  Py_DECREF(position);
  bool due = r == nullptr || PyObject_IsTrue(r) == 1;  // a device that can't say is lost: nothing runs there any more
  Py_XDECREF(r);
  PyErr_Clear();
  return due && !s->pending.empty() && s->pending.front().id == id;  // another thread may have taken it meanwhile
}

// Moves what queued work has passed into the cache. Leaves exceptions alone that were set before.
void drain(LRUObject* self) {
  LRUState* s = self->state;
  while (!s->pending.empty() && first_is_due(self)) {
    PendingFree first = std::move(s->pending.front());
    s->pending.pop_front();
    s->pending_bytes -= first.size;
    Py_XDECREF(first.position);
    if (!first.options) {
      Py_DECREF(first.opaque);  // a caller's memory
    } else if (first.really || s->closed) {
      if (call_free(self, first.opaque, first.options)) PyErr_Clear();
    } else {
      s->cache.push(first.opaque, first.size, first.kind, first.options);
    }
  }
}

void nap() {
  timespec t{0, 20'000};
  Py_BEGIN_ALLOW_THREADS;
  nanosleep(&t, nullptr);
  Py_END_ALLOW_THREADS;
}

// Waits up to `patience` ns for memory that queued work still uses: 1 when some of it came, 0 when none did, -1 when a
// Python signal handler raised. With the GIL released in between.
int wait_for_pending(LRUObject* self, uint64_t patience) {
  LRUState* s = self->state;
  if (s->pending.empty()) return 0;
  uint64_t before = s->pending_bytes, deadline = now_ns() + patience;
  for (;;) {
    drain(self);
    if (s->pending.empty() || s->pending_bytes < before) return 1;
    if (now_ns() > deadline) return 0;
    s->pending.front().stamp.help();
    nap();
    if (PyErr_CheckSignals()) return -1;
  }
}

int drop_oldest(LRUObject* self) {
  PyObject *opaque, *options;
  uint64_t size;
  if (!self->state->cache.pop_oldest(&opaque, &size, &options)) return 0;
  return call_free(self, opaque, options);
}

// Raises OutOfMemory with the largest holders; `cause` (stolen, may be null) is what the driver said.
void refuse(LRUObject* self, uint64_t size, PyObject* cause) {
  static PyObject* kept;
  LRUState* s = self->state;
  PyObject* make = python_object("hcq.runtime.allocator", "out_of_memory", &kept);
  PyObject* error = nullptr;
  if (make)
    error = PyObject_CallFunction(make, "OKKKKO", reinterpret_cast<PyObject*>(self), size, s->live_bytes,
                                  s->cache.bytes() + s->pending_bytes, s->limit, cause ? cause : Py_None);
  if (error) put_error(error);
  Py_XDECREF(cause);
}

// The pending exception when it means that the driver is out of memory: taken (without its traceback, which would hold
// the frames), else null and left set.
PyObject* take_out_of_memory() {
  PyObject* error = take_error();
  bool means =
      PyErr_GivenExceptionMatches(error, PyExc_MemoryError) || PyErr_GivenExceptionMatches(error, PyExc_RuntimeError);
  // Two kinds of RuntimeError that say something else.
  means = means && !PyErr_GivenExceptionMatches(error, PyExc_NotImplementedError) &&
          !PyErr_GivenExceptionMatches(error, PyExc_RecursionError);
  PyObject* ours = means ? error_type("HCQError") : nullptr;
  PyObject* out = ours ? error_type("OutOfMemory") : nullptr;
  if (!out || (PyErr_GivenExceptionMatches(error, ours) && !PyErr_GivenExceptionMatches(error, out))) {
    put_error(error);
    return nullptr;
  }
  if (PyException_SetTraceback(error, Py_None)) PyErr_Clear();
  return error;
}

PyObject* alloc_anew(LRUObject* self, uint64_t size, PyObject* options) {
  LRUState* s = self->state;
  // Counted before the driver is asked, so that two threads don't pass one limit together.
  s->live_bytes += size;
  PyObject* opaque = call_alloc(self, size, options);
  if (opaque) return opaque;
  s->live_bytes -= size;
  PyObject* cause = take_out_of_memory();
  if (!cause) return nullptr;
  bool more = false;
  if (!s->pending.empty()) {
    if (wait_for_pending(self, kLastResort) < 0) {
      Py_DECREF(cause);
      return nullptr;
    }
    more = true;
  }
  if (s->cache.count()) more = true;
  if (more) {
    Py_CLEAR(cause);
    if (lru_free_cache(self)) PyErr_Clear();  // the second try tells
    s->live_bytes += size;
    opaque = call_alloc(self, size, options);
    if (opaque) return opaque;
    s->live_bytes -= size;
    cause = take_out_of_memory();
    if (!cause) return nullptr;
  }
  if (PyErr_GivenExceptionMatches(cause, error_type("OutOfMemory"))) {
    put_error(cause);
    return nullptr;
  }
  refuse(self, size, cause);
  return nullptr;
}

// Whether this process may use it. Inherited through fork, the shared allocator of no device begins anew, the others
// raise ForkedDeviceError.
bool usable(LRUObject* self) {
  if (self->generation == g_generation) return true;
  if (self->device) {
    set_forked(self->generation, "an allocator");
    return false;
  }
  LRUState* inherited = self->state;  // leaked, with the memory it keeps
  self->state = new LRUState;
  self->state->limit = inherited->limit;
  self->state->lru = inherited->lru;
  self->generation = g_generation;
  return true;
}

PyObject* method_alloc(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[2] = {nullptr, Py_None};
  static const char* const keywords[] = {"size", "options"};
  if (!unpack(args, n, kwnames, keywords, 2, 1, "alloc", values)) return nullptr;
  uint64_t size;
  if (!to_size(values[0], &size)) return nullptr;
  return lru_alloc(as_lru(o), size, values[1]);
}

PyObject* method_free(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[3] = {nullptr, nullptr, Py_None};
  static const char* const keywords[] = {"opaque", "size", "options"};
  if (!unpack(args, n, kwnames, keywords, 3, 2, "free", values)) return nullptr;
  uint64_t size;
  if (!to_size(values[1], &size)) return nullptr;
  if (lru_free(as_lru(o), values[0], size, values[2])) return nullptr;
  Py_RETURN_NONE;
}

PyObject* method_free_cache(PyObject* o, PyObject*) {
  if (lru_free_cache(as_lru(o))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* method_close(PyObject* o, PyObject*) {
  as_lru(o)->state->closed = true;
  return method_free_cache(o, nullptr);
}

PyObject* get_limit(PyObject* o, void*) {
  uint64_t limit = as_lru(o)->state->limit;
  return limit ? PyLong_FromUnsignedLongLong(limit) : Py_NewRef(Py_None);
}

int set_limit(PyObject* o, PyObject* value, void*) {
  uint64_t limit = 0;
  if (value && value != Py_None && !to_u64(value, "limit", &limit)) return -1;
  as_lru(o)->state->limit = limit;
  return 0;
}

PyObject* get_device(PyObject* o, void*) {
  PyObject* device = as_lru(o)->device;
  return Py_NewRef(device ? device : Py_None);
}

int set_device(PyObject* o, PyObject* value, void*) {
  PyObject* before = as_lru(o)->device;
  as_lru(o)->device = Py_XNewRef(value == Py_None ? nullptr : value);
  as_lru(o)->state->closed = false;  // a driver may keep its allocator for the device it opens next
  Py_XDECREF(before);
  return 0;
}

template <uint64_t (*read)(const LRUState*)>
PyObject* get_count(PyObject* o, void*) {
  return PyLong_FromUnsignedLongLong(read(as_lru(o)->state));
}
uint64_t live_bytes(const LRUState* s) { return s->live_bytes; }
uint64_t cached_bytes(const LRUState* s) { return s->cache.bytes() + s->pending_bytes; }
uint64_t cached_count(const LRUState* s) { return s->cache.count() + s->pending.size(); }
uint64_t pending_bytes(const LRUState* s) { return s->pending_bytes; }

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  LRUObject* self = as_lru(o);
  self->state = new LRUState;
  self->generation = g_generation;
  self->next = g_allocators;
  if (g_allocators) g_allocators->previous = self;
  g_allocators = self;
  static PyObject* kept;
  PyObject* settings = python_object("hcq.runtime.allocator", "cache_settings", &kept);
  PyObject* r = settings ? PyObject_CallNoArgs(settings) : nullptr;
  unsigned long long limit;
  int lru;
  if (!r || !PyArg_ParseTuple(r, "Kp", &limit, &lru)) {
    Py_XDECREF(r);
    Py_DECREF(o);
    return nullptr;
  }
  Py_DECREF(r);
  self->state->limit = limit;
  self->state->lru = lru != 0;
  return o;
}

int init(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:LRUAllocator", const_cast<char**>(keywords), &device)) return -1;
  return device ? set_device(o, device, nullptr) : 0;
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  LRUObject* self = as_lru(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(self->dict);
  Py_VISIT(self->device);
  if (LRUState* s = self->state) {
    for (CachedBlock* b = s->cache.oldest(); b; b = b->newer) {
      Py_VISIT(b->opaque);
      Py_VISIT(b->options);
    }
    for (PendingFree& p : s->pending) {
      Py_VISIT(p.opaque);
      Py_VISIT(p.options);
      Py_VISIT(p.position);
    }
    Py_VISIT(s->kinds);
    Py_VISIT(s->last_options);
  }
  return 0;
}

int clear(PyObject* o) {
  Py_CLEAR(as_lru(o)->dict);
  Py_CLEAR(as_lru(o)->device);
  return 0;
}

// What is cached goes back to the driver. Pending memory too: its device is gone, so nothing is left to wait for.
void finalize(PyObject* o) {
  LRUObject* self = as_lru(o);
  if (self->generation != g_generation || finalizing()) return;
  ErrorKept kept;
  self->state->closed = true;
  drain(self);
  lru_free_cache(self);
}

void dealloc(PyObject* o) {
  LRUObject* self = as_lru(o);
  PyObject_GC_UnTrack(o);
  if (PyObject_CallFinalizerFromDealloc(o) < 0) return;
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  clear(o);
  LRUState* s = self->state;
  self->state = nullptr;
  if (s) {
    (self->previous ? self->previous->next : g_allocators) = self->next;
    if (self->next) self->next->previous = self->previous;
  }
  if (s && self->generation == g_generation) {
    PyObject *opaque, *options;
    uint64_t size;
    while (s->cache.pop_oldest(&opaque, &size, &options)) {
      Py_DECREF(opaque);
      Py_DECREF(options);
    }
    for (PendingFree& p : s->pending) {
      Py_DECREF(p.opaque);
      Py_XDECREF(p.options);
      Py_XDECREF(p.position);
    }
    Py_CLEAR(s->kinds);
    Py_CLEAR(s->last_options);
    delete s;
  }  // else inherited through fork: leaked
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"alloc", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method_alloc)), METH_FASTCALL | METH_KEYWORDS,
     "alloc(size, options=None)\n--\n\nMemory of `size` bytes: from the cache, else from `_alloc`. Contents are "
     "undefined.\n"
     "Raises ValueError for sizes of 0 or less, OutOfMemory where the driver or `limit` refuses. May wait a little "
     "for\n"
     "memory that queued work still uses."},
    {"free", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method_free)), METH_FASTCALL | METH_KEYWORDS,
     "free(opaque, size, options=None)\n--\n\nKeep the memory for the next `alloc` of this size and options, once "
     "queued work\n"
     "has passed; with `nolru` (or LRU=0) give it back by `_free`. Doesn't block."},
    {"free_cache", method_free_cache, METH_NOARGS, "free_cache()\n--\n\nGive all cached memory back to the driver."},
    {"close", method_close, METH_NOARGS,
     "close()\n--\n\nFree the cache and keep nothing from now on: the device is being closed."},
    {nullptr},
};

PyGetSetDef getset[] = {
    {"limit", get_limit, set_limit,
     "Bytes that live and cached memory may take together, or None. HCQ_MEMORY_LIMIT sets it."},
    {"device", get_device, set_device, "The device this allocates for, or None."},
    {"live_bytes", get_count<live_bytes>, nullptr, "Bytes handed out by alloc and not yet freed."},
    {"cached_bytes", get_count<cached_bytes>, nullptr,
     "Bytes kept for reuse, those that queued work still uses included."},
    {"cached_count", get_count<cached_count>, nullptr, "Blocks kept for reuse."},
    {"pending_bytes", get_count<pending_bytes>, nullptr, "Bytes freed that queued work may still use."},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr},
    {nullptr},
};

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(LRUObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(LRUObject, weakrefs), READONLY, nullptr},
    {nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_doc,
     const_cast<char*>("LRUAllocator(device=None)\n--\n\n"
                       "Base of allocators that keep freed memory by (size, options) and hand it out again.\n\n"
                       "A driver overrides `_alloc(size, options)` and `_free(opaque, options)`. When `_alloc` raises "
                       "RuntimeError or\n"
                       "MemoryError the cache is emptied and it is asked once more, then OutOfMemory is raised. "
                       "Threads may share it;\n"
                       "a block is never handed to two of them.")},
    {0, nullptr},
};

PyType_Spec spec = {"hcq.LRUAllocator", sizeof(LRUObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

PyObject* lru_allocators(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (LRUObject* a = g_allocators; list && a; a = a->next)
    if (a->generation == g_generation && Py_REFCNT(a) > 0 && PyList_Append(list, reinterpret_cast<PyObject*>(a)))
      Py_CLEAR(list);
  return list;
}

PyMethodDef functions[] = {
    {"lru_allocators", lru_allocators, METH_NOARGS,
     "lru_allocators()\n--\n\nAll LRUAllocator objects of this process."},
    {nullptr},
};

}  // namespace

bool lru_is_plain(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (!PyType_IsSubtype(type, LRUAllocator_Type)) return false;
  if (_PyType_Lookup(type, names.alloc) != g_alloc_method || _PyType_Lookup(type, names.free) != g_free_method)
    return false;
  PyObject* dict = as_lru(o)->dict;
  return !dict || (!PyDict_GetItemWithError(dict, names.alloc) && !PyDict_GetItemWithError(dict, names.free));
}

PyObject* lru_alloc(LRUObject* self, uint64_t size, PyObject* options) {
  if (!usable(self)) return nullptr;
  LRUState* s = self->state;
  if (s->closed) {
    PyErr_SetString(PyExc_RuntimeError, "the device of this allocator was closed: Device[name] opens it anew");
    return nullptr;
  }
  run_retired();
  if (!s->pending.empty()) drain(self);
  Kind kind;
  if (!kind_of(s, options, &kind)) return nullptr;
  PyObject *opaque, *kept_options;
  for (bool waited = false;;) {
    if (s->cache.pop(size, kind.number, &opaque, &kept_options)) {
      s->live_bytes += size;
      Py_DECREF(kept_options);
      return opaque;
    }
    if (waited || s->pending_bytes <= kPendingBound || now_ns() < s->patience_at) break;
    int came = wait_for_pending(self, kPatience);
    if (came < 0) return nullptr;
    if (!came) s->patience_at = now_ns() + kImpatience;
    waited = true;
  }
  while (s->limit && s->live_bytes + s->cache.bytes() + s->pending_bytes + size > s->limit) {
    if (size <= s->limit && s->cache.count()) {
      if (drop_oldest(self)) return nullptr;
    } else {
      int came = size > s->limit ? 0 : wait_for_pending(self, kLastResort);
      if (came == 0) refuse(self, size, nullptr);
      if (came <= 0) return nullptr;
    }
  }
  return alloc_anew(self, size, options);
}

int lru_free(LRUObject* self, PyObject* opaque, uint64_t size, PyObject* options) {
  if (self->generation != g_generation && self->device) return 0;  // inherited through fork: left alone
  if (!usable(self)) return -1;
  if (hcq_buffer_check(opaque) && reinterpret_cast<HCQBufferObject*>(opaque)->generation != g_generation) return 0;
  LRUState* s = self->state;
  if (pinned(opaque)) {
    free_when_unpinned(opaque, reinterpret_cast<PyObject*>(self), size, options);
    return 0;
  }
  Kind kind;
  if (!kind_of(s, options, &kind)) return -1;
  bool lost;
  PyObject* position = position_of(self, &lost);
  s->live_bytes -= size < s->live_bytes ? size : s->live_bytes;
  if (lost) return 0;
  bool really = s->closed || !s->lru || kind.nolru;
  Stamp stamp = Stamp::now();
  Py_INCREF(opaque);
  Py_INCREF(options);
  if (!stamp.empty() || position) {
    s->pending_bytes += size;
    s->pending.push_back(
        PendingFree{s->next_id++, opaque, options, position, size, kind.number, really, std::move(stamp)});
    return 0;
  }
  if (really) return call_free(self, opaque, options);
  s->cache.push(opaque, size, kind.number, options);
  return 0;
}

PyObject* allocate_memory(PyObject* allocator, uint64_t size, PyObject* options) {
  if (lru_is_plain(allocator)) return lru_alloc(as_lru(allocator), size, options);
  PyObject* number = PyLong_FromUnsignedLongLong(size);
  if (!number) return nullptr;
  PyObject* args[] = {allocator, number, options};
  PyObject* opaque = PyObject_VectorcallMethod(names.alloc, args, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  Py_DECREF(number);
  return opaque;
}

void release_memory(PyObject* allocator, PyObject* opaque, uint64_t size, PyObject* options) {
  if (pinned(opaque)) {
    free_when_unpinned(opaque, allocator, size, options);
  } else if (lru_is_plain(allocator)) {
    if (lru_free(as_lru(allocator), opaque, size, options)) PyErr_Clear();
  } else {
    PyObject* number = PyLong_FromUnsignedLongLong(size);
    PyObject* args[] = {allocator, opaque, number, options};
    PyObject* r =
        number ? PyObject_VectorcallMethod(names.free, args, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr) : nullptr;
    if (!r) PyErr_Clear();
    Py_XDECREF(r);
    Py_XDECREF(number);
  }
}

void release_caller_memory(PyObject* allocator, PyObject* opaque) {
  if (PyType_IsSubtype(Py_TYPE(allocator), LRUAllocator_Type) && as_lru(allocator)->generation == g_generation) {
    bool lost;
    LRUObject* lru = as_lru(allocator);
    if (PyObject* position = position_of(lru, &lost)) {
      LRUState* s = lru->state;
      s->pending.push_back(PendingFree{s->next_id++, opaque, nullptr, position, 0, 0, true, Stamp::now()});
      return;
    }
  }
  retire_object(opaque);
}

int lru_free_cache(LRUObject* self) {
  if (self->generation != g_generation) return 0;  // what it keeps is the parent's
  LRUState* s = self->state;
  drain(self);
  // Those cached by other threads while _free runs are theirs: only as many as there are now.
  PyObject* first = nullptr;
  for (uint64_t n = s->cache.count(); n && s->cache.count(); --n)
    if (drop_oldest(self)) {
      PyObject* error = take_error();
      if (first)
        Py_DECREF(error);
      else
        first = error;
    }
  forget_kinds(s);
  if (PyType_IsSubtype(Py_TYPE(self), HostAllocator_Type)) host_trim();
  if (first) put_error(first);
  return first ? -1 : 0;
}

int init_lru(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (!type) return -1;
  LRUAllocator_Type = reinterpret_cast<PyTypeObject*>(type);
  g_alloc_method = _PyType_Lookup(LRUAllocator_Type, names.alloc);
  g_free_method = _PyType_Lookup(LRUAllocator_Type, names.free);
  return PyModule_AddFunctions(module, functions) || PyModule_AddObjectRef(module, "LRUAllocator", type) ? -1 : 0;
}

}  // namespace hcq
