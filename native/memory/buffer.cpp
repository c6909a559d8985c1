// hcq.Buffer: creation, views, attributes. Its memory is in buffer_memory.cpp, copies and exports in
// buffer_methods.cpp, what is rare (pickling, texts, fill) in hcq/runtime/buffer.py. All of it runs with the GIL.
#include "memory/buffer.hpp"

#include <Python.h>
#include <structmember.h>

namespace hcq {

PyTypeObject* Buffer_Type = nullptr;

namespace {

enum Argument {
  kDevice,
  kSize,
  kDtype,
  kOpaque,
  kOptions,
  kInitialValue,
  kRefcount,
  kBase,
  kOffset,
  kPreallocate,
  kArguments
};
const char* const kKeywords[kArguments] = {"device",        "size",        "dtype", "opaque", "options",
                                           "initial_value", "lb_refcount", "base",  "offset", "preallocate"};
PyObject* g_keywords[kArguments];  // interned

// Dead buffers kept for the next; exact type only.
constexpr int kKept = 64;
PyObject* g_kept[kKept];
int g_kept_count = 0;

BufferObject* make(PyTypeObject* type) {
  PyObject* o;
  if (type == Buffer_Type && g_kept_count) {
    o = g_kept[--g_kept_count];
    PyObject_Init(o, type);
    constexpr size_t head = sizeof(PyObject);
    memset(reinterpret_cast<char*>(o) + head, 0, sizeof(BufferObject) - head);
  } else if (!(o = type->tp_alloc(type, 0))) {
    return nullptr;
  }
  as_buffer_object(o)->generation = g_generation;
  return as_buffer_object(o);
}

int initialize(BufferObject* self, PyObject** v) {
  if (self->device) {
    PyErr_SetString(PyExc_RuntimeError, "a Buffer can't be initialised twice");
    return -1;
  }
  const DtypeEntry* dtype = dtype_entry(v[kDtype]);
  if (!dtype) return -1;
  self->dtype = Py_NewRef(dtype->dtype);
  PyObject* options = v[kOptions];
  if (options && options != Py_None) {
    static PyObject* kept;
    PyObject* type = python_object("hcq.runtime.options", "BufferOptions", &kept);
    int right = type ? PyObject_IsInstance(options, type) : -1;
    if (right == 0)
      PyErr_Format(PyExc_TypeError, "options must be an hcq.BufferOptions or None, not %.100s",
                   Py_TYPE(options)->tp_name);
    if (right <= 0) return -1;
    self->options = Py_NewRef(options);
  } else {
    self->options = Py_NewRef(dtype->image_options ? dtype->image_options : Py_None);
  }
  uint64_t itemsize = dtype->itemsize, offset = 0;
  if (!(self->device = canonical_name(v[kDevice]))) return -1;
  if (!(self->record = record_of(self->device))) return -1;
  self->survives_fork = self->record->survives_fork;
  if (!to_u64(v[kSize], "size", &self->size)) return -1;
  if (__builtin_mul_overflow(self->size, itemsize, &self->nbytes) || self->nbytes > INT64_MAX) {
    PyErr_Format(PyExc_ValueError, "%llu elements of %llu bytes are more than a buffer can have (2**63 - 1 bytes)",
                 static_cast<unsigned long long>(self->size), static_cast<unsigned long long>(itemsize));
    return -1;
  }
  if (v[kRefcount] && v[kRefcount] != Py_None) {
    self->lb_refcount = PyLong_AsLongLong(v[kRefcount]);
    if (self->lb_refcount == -1 && PyErr_Occurred()) return -1;
  }
  if (v[kOffset] && v[kOffset] != Py_None && !to_u64(v[kOffset], "offset", &offset)) return -1;
  PyObject* opaque = v[kOpaque] == Py_None ? nullptr : v[kOpaque];
  PyObject* initial = v[kInitialValue] == Py_None ? nullptr : v[kInitialValue];
  if (v[kBase] && v[kBase] != Py_None) {
    if (!buffer_check(v[kBase])) {
      PyErr_Format(PyExc_TypeError, "base must be a Buffer, not %.100s", Py_TYPE(v[kBase])->tp_name);
      return -1;
    }
    if (opaque || initial) {
      PyErr_SetString(PyExc_ValueError, "a view has its root's memory: it takes no opaque and no initial_value");
      return -1;
    }
    if (self->size == 0) {
      PyErr_SetString(PyExc_ValueError, "a view must have at least one element, not 0");
      return -1;
    }
    BufferObject* from = as_buffer_object(v[kBase]);
    if (!buffer_usable(from)) return -1;
    if (from->device != self->device && PyObject_RichCompareBool(from->device, self->device, Py_EQ) != 1) {
      PyErr_Format(PyExc_ValueError, "a view on %U can't share memory of a buffer on %U", self->device, from->device);
      return -1;
    }
    if (offset > from->nbytes || self->nbytes > from->nbytes - offset) {
      PyErr_Format(PyExc_ValueError,
                   "a view of %llu bytes from byte %llu on reaches past the end of a buffer of %llu bytes",
                   static_cast<unsigned long long>(self->nbytes), static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(from->nbytes));
      return -1;
    }
    BufferObject* root = root_of(from);
    self->base = reinterpret_cast<BufferObject*>(Py_NewRef(as_object(root)));
    self->offset = from->offset + offset;
    root->lb_refcount += self->lb_refcount;
    return root->buf ? buffer_materialize(self) : 0;
  }
  if (offset) {
    PyErr_SetString(PyExc_ValueError, "an offset needs a base: buf.view(size, dtype, offset) makes views");
    return -1;
  }
  if (!opaque && !initial && !v[kPreallocate]) return 0;
  int preallocate = opaque || initial ? 1 : PyObject_IsTrue(v[kPreallocate]);
  if (preallocate <= 0) return preallocate;
  if (buffer_allocate(self, opaque)) return -1;
  return initial ? buffer_copyin(self, initial) : 0;
}

PyObject* vectorcall(PyObject* type, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* values[kArguments] = {};
  Py_ssize_t n = PyVectorcall_NARGS(nargsf), named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool quick = n >= 3 && n <= kArguments;
  for (Py_ssize_t i = 0; quick && i < n; ++i) values[i] = args[i];
  for (Py_ssize_t k = 0; quick && k < named; ++k) {
    PyObject* key = PyTuple_GET_ITEM(kwnames, k);
    int i = static_cast<int>(n);
    while (i < kArguments && key != g_keywords[i]) ++i;
    quick = i < kArguments;
    if (quick) values[i] = args[n + k];
  }
  if (!quick) {
    for (PyObject*& value : values) value = nullptr;
    if (!unpack(args, n, kwnames, kKeywords, kArguments, 3, "Buffer", values)) return nullptr;
  }
  BufferObject* self = make(reinterpret_cast<PyTypeObject*>(type));
  if (self && initialize(self, values)) Py_CLEAR(self);
  return as_object(self);
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) { return as_object(make(type)); }

int init(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* keywords[kArguments + 1];
  for (int i = 0; i < kArguments; ++i) keywords[i] = kKeywords[i];
  PyObject* v[kArguments] = {};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOOOOOO:Buffer", const_cast<char**>(keywords), &v[0], &v[1],
                                   &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &v[9]))
    return -1;
  return initialize(as_buffer_object(o), v);
}

void dealloc(PyObject* o) {
  BufferObject* self = as_buffer_object(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  if (self->buf) {
    // Releasing may call a driver's Python: an exception under way in this thread is kept apart.
    ErrorKept kept;
    buffer_release(self);
  }
  Py_XDECREF(as_object(self->base));
  Py_XDECREF(self->device);
  Py_XDECREF(self->dtype);
  Py_XDECREF(self->options);
  Py_XDECREF(self->shape);
  Py_XDECREF(self->interface_export);
  PyTypeObject* type = Py_TYPE(o);
  if (type == Buffer_Type && g_kept_count < kKept)
    g_kept[g_kept_count++] = o;
  else
    type->tp_free(o);
  Py_DECREF(type);
}

PyObject* get_buf(PyObject* o, void*) {
  BufferObject* self = as_buffer_object(o);
  if (self->buf && (self->generation == g_generation || self->survives_fork)) return Py_NewRef(self->buf);
  if (buffer_usable(self)) PyErr_SetString(PyExc_AttributeError, "this buffer is not allocated, so it has no _buf");
  return nullptr;
}

PyObject* get_allocator(PyObject* o, void*) {
  BufferObject* root = root_of(as_buffer_object(o));
  if (root->allocator) return Py_NewRef(root->allocator);
  PyErr_SetString(PyExc_AttributeError, "this buffer is not allocated, so it has no allocator");
  return nullptr;
}

PyObject* get_root(PyObject* o, void*) { return Py_NewRef(as_object(root_of(as_buffer_object(o)))); }
PyObject* get_base(PyObject* o, void*) {
  BufferObject* base = as_buffer_object(o)->base;
  return Py_NewRef(base ? as_object(base) : Py_None);
}
// What a buffer is, as numbers and names: in a forked child these refuse too, at no more than a comparison.
bool inherited(BufferObject* self) {
  if (__builtin_expect(self->generation == g_generation || self->survives_fork, 1)) return false;
  set_forked(self->generation, "a buffer");
  return true;
}
template <uint64_t BufferObject::*Member>
PyObject* get_number(PyObject* o, void*) {
  BufferObject* self = as_buffer_object(o);
  return inherited(self) ? nullptr : PyLong_FromUnsignedLongLong(self->*Member);
}
template <PyObject* BufferObject::*Member>
PyObject* get_object(PyObject* o, void* name) {
  BufferObject* self = as_buffer_object(o);
  if (inherited(self)) return nullptr;
  if (self->*Member) return Py_NewRef(self->*Member);
  return PyErr_Format(PyExc_AttributeError, "this Buffer was not initialised: it has no %s",
                      static_cast<const char*>(name));
}

PyObject* get_refcount(PyObject* o, void*) { return PyLong_FromLongLong(root_of(as_buffer_object(o))->lb_refcount); }
int set_refcount(PyObject* o, PyObject* value, void*) {
  long long n = value ? PyLong_AsLongLong(value) : 0;
  if (n == -1 && PyErr_Occurred()) return -1;
  root_of(as_buffer_object(o))->lb_refcount = n;
  return 0;
}
PyObject* get_options(PyObject* o, void*) {
  PyObject* options = as_buffer_object(o)->options;
  return Py_NewRef(options ? options : Py_None);
}
int set_options(PyObject* o, PyObject* value, void*) {
  PyObject* before = as_buffer_object(o)->options;
  as_buffer_object(o)->options = Py_NewRef(value ? value : Py_None);
  Py_XDECREF(before);
  return 0;
}
PyObject* get_shape(PyObject* o, void*) {
  BufferObject* self = as_buffer_object(o);
  if (inherited(self)) return nullptr;
  return self->shape ? Py_NewRef(self->shape) : Py_BuildValue("(K)", static_cast<unsigned long long>(self->size));
}
// For hcq.array and hcq.empty, who checked that it fits.
int set_shape(PyObject* o, PyObject* value, void*) {
  if (!value || !PyTuple_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "a shape is a tuple of integers");
    return -1;
  }
  PyObject* before = as_buffer_object(o)->shape;
  as_buffer_object(o)->shape = Py_NewRef(value);
  Py_XDECREF(before);
  return 0;
}

PyGetSetDef getset[] = {
    {"device", get_object<&BufferObject::device>, nullptr, "The device's canonical name.", const_cast<char*>("device")},
    {"dtype", get_object<&BufferObject::dtype>, nullptr, "The type of an element.", const_cast<char*>("dtype")},
    {"size", get_number<&BufferObject::size>, nullptr, "Elements."},
    {"nbytes", get_number<&BufferObject::nbytes>, nullptr, "Bytes."},
    {"offset", get_number<&BufferObject::offset>, nullptr, "Bytes from the start of the root buffer."},
    {"_buf", get_buf, nullptr, "The driver's handle on the memory; AttributeError while not allocated."},
    {"allocator", get_allocator, nullptr, "The allocator the memory came from; AttributeError while not allocated."},
    {"base", get_root, nullptr, "The root buffer: itself, unless this is a view."},
    {"_base", get_base, nullptr, "The root buffer of a view, else None."},
    {"lb_refcount", get_refcount, set_refcount, "A count that clients keep, one for a root and its views."},
    {"_lb_refcount", get_refcount, set_refcount, "Another name of lb_refcount."},
    {"options", get_options, set_options,
     "BufferOptions or None; read when the memory is freed, free to change until then."},
    {"shape", get_shape, nullptr, "The shape it was made with by hcq.array or hcq.empty, else (size,)."},
    {"_shape", get_shape, set_shape, nullptr},
    {nullptr},
};

PyMemberDef members[] = {
    {"_interface_export", T_OBJECT, offsetof(BufferObject, interface_export), 0, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BufferObject, weakrefs), READONLY, nullptr},
    {nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, buffer_methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_bf_getbuffer, reinterpret_cast<void*>(buffer_procs.bf_getbuffer)},
    {Py_tp_doc,
     const_cast<char*>(
         "Buffer(device, size, dtype, opaque=None, options=None, initial_value=None, lb_refcount=0, base=None, "
         "offset=0, "
         "preallocate=False)\n--\n\n"
         "Memory of `size` elements of `dtype` on `device` (a name).\n\n"
         "Nothing is allocated and no device opened until it is asked for: `opaque` (a caller's memory as the driver\n"
         "names it, kept alive, never freed by us), `initial_value` (bytes to copy in), `preallocate`, or allocate().\n"
         "With `base` it is a view of that buffer from byte `offset` on. Threads may share a buffer; ordering what "
         "they\n"
         "do to its contents is theirs. In a forked child every use raises ForkedDeviceError.")},
    {0, nullptr},
};

PyType_Spec spec = {"hcq.Buffer", sizeof(BufferObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

int init_buffer(PyObject* module) {
  for (int i = 0; i < kArguments; ++i)
    if (!(g_keywords[i] = PyUnicode_InternFromString(kKeywords[i]))) return -1;
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (!type) return -1;
  Buffer_Type = reinterpret_cast<PyTypeObject*>(type);
  Buffer_Type->tp_vectorcall = vectorcall;
  return PyModule_AddFunctions(module, buffer_functions) || PyModule_AddObjectRef(module, "Buffer", type) ? -1 : 0;
}

}  // namespace hcq
