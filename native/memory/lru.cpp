// hcq.LRUAllocator: the cache in front of a driver's _alloc and _free, its limit, and the list of memory that queued
// work may still use. Everything here runs with the GIL, which _alloc, _free and waits may release: state is read anew
// after each of them, and no Python runs in the middle of a change.
#include "memory/lru.hpp"

#include <Python.h>
#include <time.h>

#include "python/watch.hpp"

namespace hcq {

namespace {

constexpr uint64_t kPendingBound = 256ull << 20;  // bytes that may wait for queued work before an allocation waits
constexpr uint64_t kPatience = 50'000'000;        // ns an allocation then waits for them
constexpr uint64_t kImpatience = 1'000'000'000;   // ns without such waits after one that was in vain
constexpr uint64_t kLastResort = 1'000'000'000;   // ns it waits where it would be refused otherwise
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

PyObject* handed_out(PyObject* opaque, uint64_t size) {
  if (opaque && hcq_buffer_check(opaque)) {
    HCQBufferObject* handle = reinterpret_cast<HCQBufferObject*>(opaque);
    handle->freed = false;
    handle->asked = size;
  }
  return opaque;
}

PyObject* alloc_unwatched(LRUObject* self, uint64_t size, PyObject* options);

// Takes a handle back, so that nobody can give it back again; false with ValueError where it can't be taken.
bool take_back(LRUObject* self, PyObject* opaque, uint64_t size) {
  if (!hcq_buffer_check(opaque)) return true;  // a driver's own handles are its own affair
  HCQBufferObject* handle = reinterpret_cast<HCQBufferObject*>(opaque);
  if (handle->freed) {
    PyErr_Format(PyExc_ValueError, "%R is free already: give memory back once for each alloc", opaque);
    return false;
  }
  bool host = PyType_IsSubtype(Py_TYPE(self), HostAllocator_Type);
  uint64_t right = handle->asked ? handle->asked : host ? handle->size : size;
  if (size != right) {
    PyErr_Format(PyExc_ValueError, "%R was allocated as %llu bytes, and can't be freed as %llu", opaque,
                 static_cast<unsigned long long>(right), static_cast<unsigned long long>(size));
    return false;
  }
  handle->freed = true;
  return true;
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

}  // namespace

PyObject* lru_alloc(LRUObject* self, uint64_t size, PyObject* options) {
  PyObject* opaque = alloc_unwatched(self, size, options);
  if (opaque && watching()) {
    PyObject* device = self->device ? self->device : Py_None;
    if (tell("allocated", "(OOKO)", device, opaque, static_cast<unsigned long long>(size), options) == Told::failed) {
      ErrorKept kept;
      if (lru_free(self, opaque, size, options)) PyErr_Clear();
      Py_CLEAR(opaque);
    }
  }
  return opaque;
}

namespace {
PyObject* alloc_unwatched(LRUObject* self, uint64_t size, PyObject* options) {
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
      return handed_out(opaque, size);
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
  return handed_out(alloc_anew(self, size, options), size);
}
}  // namespace

int lru_free(LRUObject* self, PyObject* opaque, uint64_t size, PyObject* options) {
  if (self->generation != g_generation && self->device) return 0;  // inherited through fork: left alone
  if (!usable(self)) return -1;
  if (hcq_buffer_check(opaque) && reinterpret_cast<HCQBufferObject*>(opaque)->generation != g_generation) return 0;
  // Before anything that may run Python, in which another thread might free it too.
  if (!take_back(self, opaque, size)) return -1;
  if (watching()) tell_quietly("freed", "(OO)", self->device ? self->device : Py_None, opaque);
  LRUState* s = self->state;
  if (pinned(opaque)) {
    free_when_unpinned(opaque, reinterpret_cast<PyObject*>(self), size, options);
    return 0;
  }
  Kind kind;
  if (!kind_of(s, options, &kind)) {
    if (hcq_buffer_check(opaque)) reinterpret_cast<HCQBufferObject*>(opaque)->freed = false;
    return -1;
  }
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
  if (lru_is_plain(allocator)) {
    if (lru_free(as_lru(allocator), opaque, size, options)) PyErr_Clear();
  } else if (pinned(opaque)) {
    free_when_unpinned(opaque, allocator, size, options);
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

}  // namespace hcq
