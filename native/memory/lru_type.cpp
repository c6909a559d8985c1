// hcq.LRUAllocator as a Python type: arguments, attributes, life. What alloc and free do is lru.cpp.
#include <Python.h>
#include <structmember.h>

#include "memory/lru.hpp"

namespace hcq {

PyTypeObject* LRUAllocator_Type = nullptr;

namespace {

PyObject *g_alloc_method, *g_free_method;  // our own, as found in the type
LRUObject* g_allocators;                   // all of them, by next

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
  if (values[0] == Py_None) {
    PyErr_SetString(PyExc_TypeError, "free() takes what alloc gave, not None");
    return nullptr;
  }
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
     "has passed; with `nolru` (or LRU=0) give it back by `_free`. Doesn't block. Raises TypeError for None, "
     "ValueError\n"
     "for an HCQBuffer that is free already or was allocated as another size."},
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

int init_lru(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (!type) return -1;
  LRUAllocator_Type = reinterpret_cast<PyTypeObject*>(type);
  g_alloc_method = _PyType_Lookup(LRUAllocator_Type, names.alloc);
  g_free_method = _PyType_Lookup(LRUAllocator_Type, names.free);
  return PyModule_AddFunctions(module, functions) || PyModule_AddObjectRef(module, "LRUAllocator", type) ? -1 : 0;
}

}  // namespace hcq
