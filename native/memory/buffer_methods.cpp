// hcq.Buffer: copies to and from host memory, zero-copy exports, views by method. Life and allocation are in
// buffer.cpp.
#include "memory/buffer.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {

template <typename F>
PyCFunction cast(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// Whether `name` of this allocator is HostAllocator's own, so that it may be done natively.
bool is_host_native(PyObject* allocator, PyObject* name) {
  PyTypeObject* type = Py_TYPE(allocator);
  if (!PyType_IsSubtype(type, HostAllocator_Type)) return false;
  if (_PyType_Lookup(type, name) != _PyType_Lookup(HostAllocator_Type, name)) return false;
  PyObject* dict = as_lru(allocator)->dict;
  return !dict || !PyDict_GetItemWithError(dict, name);
}

// The memory of a buffer-protocol object, which must be contiguous and of exactly the buffer's size.
bool host_memory(BufferObject* self, PyObject* object, bool writable, const char* method, Py_buffer* view) {
  if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE)) {
    static PyObject* kept;
    PyObject* cause = take_error();
    PyObject* explain = python_object("hcq.runtime.buffer", "explain_host_memory", &kept);
    PyObject* error = explain
                          ? PyObject_CallFunction(explain, "OsOO", object, method, writable ? Py_True : Py_False, cause)
                          : nullptr;
    if (error) put_error(error);
    Py_DECREF(cause);
    return false;
  }
  if (static_cast<uint64_t>(view->len) == self->nbytes) return true;
  PyErr_Format(PyExc_ValueError, "%s needs exactly the buffer's %llu bytes, and was given %zd", method,
               static_cast<unsigned long long>(self->nbytes), view->len);
  PyBuffer_Release(view);
  return false;
}

// A flat memoryview of bytes over what `object` exports, for a driver's Python. New reference.
PyObject* flat(PyObject* object, bool writable) {
  PyObject* exporter = export_over(object, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE);
  PyObject* memory = exporter ? PyMemoryView_FromObject(exporter) : nullptr;
  Py_XDECREF(exporter);
  return memory;
}

int copyout(BufferObject* self, PyObject* dest) {
  if (!buffer_ready(self, "copyout")) return -1;
  Py_buffer view;
  if (!host_memory(self, dest, true, "copyout", &view)) return -1;
  if (watching() &&
      tell("host_read", "(OiK)", as_object(self), 0, static_cast<unsigned long long>(self->nbytes)) == Told::failed) {
    PyBuffer_Release(&view);
    return -1;
  }
  int rc = -1;
  PyObject* allocator = Py_NewRef(root_of(self)->allocator);
  PyObject* buf = Py_NewRef(self->buf);
  if (is_host_native(allocator, names.copyout) && hcq_buffer_check(buf)) {
    if (as_lru(allocator)->device || buffer_wait(self) == 0)
      rc = host_copyout(allocator, view.buf, reinterpret_cast<HCQBufferObject*>(buf), self->nbytes);
  } else if (PyObject* memory = flat(dest, true)) {
    PyObject* r = PyObject_CallMethodObjArgs(allocator, names.copyout, memory, buf, nullptr);
    rc = r ? 0 : -1;
    Py_XDECREF(r);
    Py_DECREF(memory);
  }
  Py_DECREF(buf);
  Py_DECREF(allocator);
  PyBuffer_Release(&view);
  return rc;
}

// The exporter over the buffer's own memory after a wait; null with an exception, or without one where the allocator
// can't give it.
PyObject* export_memory(BufferObject* self, const ExportView& wanted) {
  if (watching() && self->buf && tell("exported", "(O)", as_object(self)) == Told::failed) return nullptr;
  if (!buffer_ready(self, "zero-copy access") || buffer_wait(self) || !buffer_ready(self, "zero-copy access"))
    return nullptr;
  BufferObject* root = root_of(self);
  ExportView view = wanted;
  view.nbytes = self->nbytes;
  if (is_host_native(root->allocator, names.as_buffer) && hcq_buffer_check(self->buf)) {
    view.address = reinterpret_cast<HCQBufferObject*>(self->buf)->va_addr;
    return export_new(root->buf, nullptr, view);
  }
  PyObject* method = PyObject_GetAttr(root->allocator, names.as_buffer);
  if (!method) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return nullptr;
  }
  PyObject* pinned_buf = Py_NewRef(root->buf);
  PyObject* memory = PyObject_CallOneArg(method, self->buf);
  Py_DECREF(method);
  PyObject* source = memory ? export_over(memory, PyBUF_SIMPLE) : nullptr;
  PyObject* exporter = nullptr;
  if (source && export_bytes(source) < self->nbytes) {
    PyErr_Format(PyExc_ValueError, "as_buffer of the allocator of %U gave %llu bytes for a buffer of %llu",
                 self->device, static_cast<unsigned long long>(export_bytes(source)),
                 static_cast<unsigned long long>(self->nbytes));
  } else if (source) {
    view.address = export_address(source);
    view.readonly = export_readonly(source);
    exporter = export_new(pinned_buf, source, view);
  } else if (PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
    PyErr_Clear();
  }
  Py_XDECREF(source);
  Py_XDECREF(memory);
  Py_DECREF(pinned_buf);
  return exporter;
}

PyObject* method_allocate(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[1] = {Py_None};
  static const char* const keywords[] = {"opaque"};
  if (!unpack(args, n, kwnames, keywords, 1, 0, "allocate", values)) return nullptr;
  BufferObject* self = as_buffer_object(o);
  if (!buffer_usable(self)) return nullptr;
  if (self->buf && !self->base) {
    PyErr_Format(PyExc_RuntimeError, "this buffer on %U is allocated already: ensure_allocated() accepts that",
                 self->device);
    return nullptr;
  }
  if (buffer_allocate(self, values[0] == Py_None ? nullptr : values[0])) return nullptr;
  return Py_NewRef(o);
}

PyObject* method_ensure_allocated(PyObject* o, PyObject*) {
  BufferObject* self = as_buffer_object(o);
  if (!buffer_usable(self) || (!self->buf && buffer_allocate(self, nullptr))) return nullptr;
  return Py_NewRef(o);
}

PyObject* method_is_allocated(PyObject* o, PyObject*) {
  BufferObject* self = as_buffer_object(o);
  if (!buffer_usable(self)) {
    // A closed device's buffer has no memory: that is an answer. One inherited through fork can't be asked.
    if (self->generation != g_generation || !self->device) return nullptr;
    PyErr_Clear();
  }
  return PyBool_FromLong(self->buf != nullptr);
}

PyObject* method_check_usable(PyObject* o, PyObject*) {
  if (!buffer_usable(as_buffer_object(o))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* method_deallocate(PyObject* o, PyObject*) {
  BufferObject* self = as_buffer_object(o);
  if (self->generation != g_generation && !buffer_usable(self)) return nullptr;
  buffer_release(self);
  Py_RETURN_NONE;
}

PyObject* method_copyin(PyObject* o, PyObject* source) {
  return buffer_copyin(as_buffer_object(o), source) ? nullptr : Py_NewRef(o);
}

PyObject* method_copyout(PyObject* o, PyObject* dest) {
  return copyout(as_buffer_object(o), dest) ? nullptr : Py_NewRef(dest);
}

PyObject* method_as_buffer(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[2] = {Py_False, Py_False};
  static const char* const keywords[] = {"allow_zero_copy", "force_zero_copy"};
  if (!unpack(args, n, kwnames, keywords, 2, 0, "as_buffer", values)) return nullptr;
  BufferObject* self = as_buffer_object(o);
  int allow = PyObject_IsTrue(values[0]), force = PyObject_IsTrue(values[1]);
  if (allow < 0 || force < 0 || !buffer_ready(self, "as_buffer")) return nullptr;
  if (allow || force) {
    PyObject* exporter = export_memory(self, ExportView());
    if (exporter) {
      PyObject* memory = PyMemoryView_FromObject(exporter);
      Py_DECREF(exporter);
      return memory;
    }
    if (PyErr_Occurred()) return nullptr;
    if (force) {
      PyErr_Format(PyExc_ValueError, "the host can't reach memory of %U: as_buffer() without force_zero_copy copies",
                   self->device);
      return nullptr;
    }
  }
  PyObject* bytes = PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(self->nbytes));
  if (!bytes || copyout(self, bytes)) {
    Py_XDECREF(bytes);
    return nullptr;
  }
  PyObject* memory = PyMemoryView_FromObject(bytes);
  Py_DECREF(bytes);
  return memory;
}

PyObject* method_export(PyObject* o, PyObject*) {
  PyObject* exporter = export_memory(as_buffer_object(o), ExportView());
  return exporter || PyErr_Occurred() ? exporter : Py_NewRef(Py_None);
}

PyObject* method_view(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[3] = {};
  static const char* const keywords[] = {"size", "dtype", "offset"};
  if (!unpack(args, n, kwnames, keywords, 3, 3, "view", values)) return nullptr;
  PyObject* arguments[] = {as_buffer_object(o)->device ? as_buffer_object(o)->device : Py_None,
                           values[0],
                           values[1],
                           Py_None,
                           Py_None,
                           Py_None,
                           Py_None,
                           o,
                           values[2]};
  return PyObject_Vectorcall(reinterpret_cast<PyObject*>(Buffer_Type), arguments, 9, nullptr);
}

PyObject* method_ref(PyObject* o, PyObject* count) {
  long long n = PyLong_AsLongLong(count);
  if (n == -1 && PyErr_Occurred()) return nullptr;
  root_of(as_buffer_object(o))->lb_refcount += n;
  return Py_NewRef(o);
}

// What the buffer protocol shows of a buffer: its dtype's format, if it has one, and its shape.
int getbuffer(PyObject* o, Py_buffer* view, int flags) {
  BufferObject* self = as_buffer_object(o);
  view->obj = nullptr;
  ExportView wanted;
  if (flags & PyBUF_FORMAT) {
    static PyObject* kept;
    PyObject* formats = python_object("hcq.runtime.buffer", "buffer_format", &kept);
    PyObject* r = formats && self->dtype ? PyObject_CallOneArg(formats, self->dtype) : nullptr;
    if (!r) return -1;
    if (r == Py_None) {
      Py_DECREF(r);
      PyErr_Format(PyExc_BufferError, "the buffer protocol has no format for %R: use as_buffer()", self->dtype);
      return -1;
    }
    Py_DECREF(r);  // a constant of the module, or interned
    wanted.format = PyUnicode_AsUTF8(r);
    wanted.itemsize = self->size ? static_cast<Py_ssize_t>(self->nbytes / self->size) : 1;
    wanted.shape = self->shape;
  }
  PyObject* exporter = export_memory(self, wanted);
  if (!exporter) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_BufferError, "the host can't reach memory of %U: use copyout() or numpy()", self->device);
    return -1;
  }
  int rc = PyObject_GetBuffer(exporter, view, flags);
  Py_DECREF(exporter);
  return rc;
}

}  // namespace

bool buffer_ready(BufferObject* self, const char* what) {
  if (!buffer_usable(self)) return false;
  if (self->buf) return true;
  PyErr_Format(PyExc_RuntimeError,
               "%s needs memory, and this buffer on %U is not allocated: call ensure_allocated() first", what,
               self->device);
  return false;
}

int buffer_wait(BufferObject* self) {
  PyObject* device = open_device(self->device);
  if (!device) return -1;
  int rc = wait_device(device);
  Py_DECREF(device);
  return rc;
}

int buffer_copyin(BufferObject* self, PyObject* source) {
  if (!buffer_ready(self, "copyin")) return -1;
  Py_buffer view;
  if (!host_memory(self, source, false, "copyin", &view)) return -1;
  if (watching() &&
      tell("host_write", "(OiK)", as_object(self), 0, static_cast<unsigned long long>(self->nbytes)) == Told::failed) {
    PyBuffer_Release(&view);
    return -1;
  }
  int rc = -1;
  PyObject* allocator = Py_NewRef(root_of(self)->allocator);
  PyObject* buf = Py_NewRef(self->buf);
  if (is_host_native(allocator, names.copyin) && hcq_buffer_check(buf)) {
    if (as_lru(allocator)->device || buffer_wait(self) == 0)
      rc = host_copyin(allocator, reinterpret_cast<HCQBufferObject*>(buf), view.buf, self->nbytes);
  } else if (PyObject* memory = flat(source, false)) {
    PyObject* r = PyObject_CallMethodObjArgs(allocator, names.copyin, buf, memory, nullptr);
    rc = r ? 0 : -1;
    Py_XDECREF(r);
    Py_DECREF(memory);
  }
  Py_DECREF(buf);
  Py_DECREF(allocator);
  PyBuffer_Release(&view);
  return rc;
}

PyBufferProcs buffer_procs = {getbuffer, nullptr};

PyMethodDef buffer_methods[] = {
    {"allocate", cast(method_allocate), METH_FASTCALL | METH_KEYWORDS,
     "allocate(opaque=None)\n--\n\nAllocate now (or use the caller's memory `opaque`) and return self. Opens the "
     "device.\n"
     "RuntimeError when it is allocated already, OutOfMemory where the device refuses."},
    {"ensure_allocated", method_ensure_allocated, METH_NOARGS,
     "ensure_allocated()\n--\n\nAllocate unless that was done; returns self."},
    {"is_allocated", method_is_allocated, METH_NOARGS,
     "is_allocated()\n--\n\nWhether it has memory: hasattr(buf, '_buf')."},
    {"_check_usable", method_check_usable, METH_NOARGS,
     "_check_usable()\n--\n\nRaise where its device was closed, or where it was inherited through fork."},
    {"deallocate", method_deallocate, METH_NOARGS,
     "deallocate()\n--\n\nGive the memory up, once queued work has passed and no zero-copy view of it lives. Views of "
     "this\n"
     "buffer become unallocated. Nothing happens where nothing is allocated."},
    {"copyin", method_copyin, METH_O,
     "copyin(source)\n--\n\nCopy `nbytes` bytes of contiguous host memory in, after the work queued on the device. The "
     "source\n"
     "may be changed when it returns. Returns self. ValueError for another size or strided memory."},
    {"copyout", method_copyout, METH_O,
     "copyout(dest)\n--\n\nCopy the contents to writable contiguous host memory of `nbytes` bytes, after the work "
     "queued on the\n"
     "device; returns `dest`. Blocks."},
    {"as_buffer", cast(method_as_buffer), METH_FASTCALL | METH_KEYWORDS,
     "as_buffer(allow_zero_copy=False, force_zero_copy=False)\n--\n\nThe contents as a memoryview of bytes, after the "
     "work queued\n"
     "on the device: a private copy, or with zero copy the device's own memory where the host reaches it, which stays\n"
     "out of reuse while the view lives. `force_zero_copy` raises ValueError where that can't be had."},
    {"_export", method_export, METH_NOARGS,
     "_export()\n--\n\nWhat a zero-copy consumer holds: the memory's exporter after a wait, or None where the host "
     "can't reach it."},
    {"view", cast(method_view), METH_FASTCALL | METH_KEYWORDS,
     "view(size, dtype, offset)\n--\n\nA buffer of `size` elements over this one's memory, from byte `offset` on. It "
     "keeps the root\n"
     "alive, is allocated when the root is, and must lie within this buffer (ValueError)."},
    {"ref", method_ref, METH_O, "ref(cnt)\n--\n\nAdd `cnt` to `lb_refcount`, a count that clients keep; returns self."},
    {nullptr},
};

}  // namespace hcq
