// The memory of hcq.Buffers: allocating it, views' part of it, giving it up, and the buffers that have some.
#include <Python.h>

#include <vector>

#include "memory/buffer.hpp"

namespace hcq {

BufferObject* g_live_roots = nullptr;

namespace {

void link(BufferObject** head, BufferObject* b) {
  b->previous = nullptr;
  b->next = *head;
  if (*head) (*head)->previous = b;
  *head = b;
  b->linked = true;
}

void unlink(BufferObject** head, BufferObject* b) {
  if (!b->linked) return;
  (b->previous ? b->previous->next : *head) = b->next;
  if (b->next) b->next->previous = b->previous;
  b->linked = false;
}

// Buffers of a device that is being closed: their memory goes, and using them raises.
PyObject* close_buffers(PyObject*, PyObject* name) {
  if (!PyUnicode_Check(name)) return PyErr_Format(PyExc_TypeError, "the name of a device is a str");
  std::vector<BufferObject*> found;
  for (BufferObject* b = g_live_roots; b; b = b->next)
    if (b->generation == g_generation && PyObject_RichCompareBool(b->device, name, Py_EQ) == 1) {
      Py_INCREF(as_object(b));
      found.push_back(b);
    }
  for (BufferObject* b : found) {
    b->closed = true;
    buffer_release(b);
    Py_DECREF(as_object(b));
  }
  Py_RETURN_NONE;
}

PyObject* live_roots(PyObject*, PyObject*) {
  PyObject* all = PyList_New(0);
  for (BufferObject* b = g_live_roots; all && b; b = b->next)
    if (b->generation == g_generation && PyList_Append(all, as_object(b))) Py_CLEAR(all);
  return all;
}

PyObject* keep_memory(PyObject*, PyObject* object) { return memory_keep(object); }

}  // namespace

int buffer_materialize(BufferObject* self) {
  BufferObject* root = self->base;
  PyObject* handle = nullptr;
  PyTypeObject* type = Py_TYPE(root->allocator);
  if (PyType_IsSubtype(type, HostAllocator_Type) && hcq_buffer_check(root->buf) &&
      _PyType_Lookup(type, names.offset) == _PyType_Lookup(HostAllocator_Type, names.offset)) {
    handle = host_offset(reinterpret_cast<HCQBufferObject*>(root->buf), self->nbytes, self->offset);
  } else {
    PyObject* method = PyObject_GetAttr(root->allocator, names.offset);
    if (!method) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Format(PyExc_ValueError, "the allocator of %U has no offset(): this device has no views", self->device);
      return -1;
    }
    handle = PyObject_CallFunction(method, "OKK", root->buf, self->nbytes, self->offset);
    Py_DECREF(method);
  }
  if (!handle) return -1;
  if (self->buf || !root->buf) {  // another thread was here while Python ran
    Py_DECREF(handle);
    return 0;
  }
  self->buf = handle;
  link(&root->views, self);
  return 0;
}

bool buffer_usable(BufferObject* self) {
  if (self->generation != g_generation && !self->survives_fork) {
    set_forked(self->generation, "a buffer");
    return false;
  }
  if (!self->device) {
    PyErr_SetString(PyExc_RuntimeError, "this Buffer was not initialised: a subclass must call super().__init__()");
    return false;
  }
  if (root_of(self)->closed) {
    PyErr_Format(PyExc_RuntimeError, "the device %U was closed, and with it this buffer: make a new one", self->device);
    return false;
  }
  return true;
}

int buffer_allocate(BufferObject* self, PyObject* opaque) {
  if (!buffer_usable(self)) return -1;
  if (BufferObject* root = self->base) {
    if (opaque) {
      PyErr_SetString(PyExc_ValueError, "a view has its root's memory: it takes no opaque");
      return -1;
    }
    if (!root->buf && buffer_allocate(root, nullptr)) return -1;
    return self->buf ? 0 : buffer_materialize(self);
  }
  if (!self->nbytes && !opaque) {
    PyErr_SetString(PyExc_ValueError, "a buffer without elements can't be allocated: it has no memory");
    return -1;
  }
  PyObject* device = open_device(self->device);
  PyObject* allocator = device ? PyObject_GetAttr(device, names.allocator) : nullptr;
  Py_XDECREF(device);
  if (!allocator) return -1;
  PyObject* options = self->options ? self->options : Py_None;
  PyObject* buf = !opaque ? allocate_memory(allocator, self->nbytes, options)
                  : PyType_IsSubtype(Py_TYPE(allocator), HostAllocator_Type) ? host_wrap(opaque, self->nbytes)
                                                                             : Py_NewRef(opaque);
  if (!buf) {
    Py_DECREF(allocator);
    return -1;
  }
  if (self->buf) {  // another thread allocated it meanwhile
    if (!opaque) release_memory(allocator, buf, self->nbytes, options);
    Py_DECREF(buf);
    Py_DECREF(allocator);
    return 0;
  }
  self->buf = buf;
  self->allocator = allocator;
  self->owned = !opaque;
  if (self->owned) {
    record_live(self->record, self->nbytes);
    trace_memory(self->record);
  } else {
    pin(buf);
  }
  link(&g_live_roots, self);
  return 0;
}

void buffer_release(BufferObject* self) {
  PyObject* buf = self->buf;
  if (!buf) return;
  if (self->base) {
    unlink(&self->base->views, self);
    self->buf = nullptr;
    Py_DECREF(buf);
    return;
  }
  while (self->views) buffer_release(self->views);
  unlink(&g_live_roots, self);
  PyObject* allocator = self->allocator;
  self->buf = self->allocator = nullptr;
  if (self->generation != g_generation && !self->survives_fork) return;  // inherited: left to the parent
  if (self->owned) {
    record_dead(self->record, self->nbytes);
    trace_memory(self->record, buf);
    release_memory(allocator, buf, self->nbytes, self->options ? self->options : Py_None);
    Py_DECREF(buf);
  } else {
    unpin(buf);
    release_caller_memory(allocator, buf);
  }
  Py_DECREF(allocator);
}

PyMethodDef buffer_functions[] = {
    {"live_roots", live_roots, METH_NOARGS,
     "live_roots()\n--\n\nThe allocated root buffers of this process, in no order."},
    {"memory_keep", keep_memory, METH_O,
     "memory_keep(object)\n--\n\nWhat keeps the memory of a Buffer or handle as it is while it lives; None where "
     "there is none."},
    {"close_buffers", close_buffers, METH_O,
     "close_buffers(name)\n--\n\nGive up the memory of all buffers on the device `name`; using them raises from now "
     "on."},
    {nullptr},
};

}  // namespace hcq
