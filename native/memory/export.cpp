// Exports of host memory: the object behind every zero-copy view, which keeps the memory from being freed or reused.
#include <Python.h>
#include <structmember.h>

#include "memory/internal.hpp"

namespace hcq {

namespace {

struct ExportObject {
  PyObject_HEAD PyObject* opaque;  // pinned; may be null
  PyObject* owner;                 // may be null
  Py_buffer source;                // of another exporter; source.obj is null when there is none
  Block* block;                    // may be null
  uint64_t address, nbytes;
  const char* format;
  Py_ssize_t itemsize;
  Py_ssize_t ndim;
  Py_ssize_t* shape;    // an entry a dimension, and as many
  Py_ssize_t* strides;  // in bytes; of a single dimension both are in `single`
  Py_ssize_t single[2];
  bool readonly;
  uint32_t generation;
};

PyTypeObject* Export_Type;

ExportObject* as_export(PyObject* o) { return reinterpret_cast<ExportObject*>(o); }

void dealloc(PyObject* o) {
  ExportObject* self = as_export(o);
  if (self->generation == g_generation) {
    block_unref(self->block);
    ErrorKept kept;
    if (self->opaque) unpin(self->opaque);
    if (self->source.obj) PyBuffer_Release(&self->source);
    Py_XDECREF(self->owner);
  }  // else inherited through fork: left alone
  if (self->shape != self->single) delete[] self->shape;
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

int getbuffer(PyObject* o, Py_buffer* view, int flags) {
  ExportObject* self = as_export(o);
  view->obj = nullptr;
  if ((flags & PyBUF_WRITABLE) && self->readonly) {
    PyErr_SetString(PyExc_BufferError, "this memory is read-only");
    return -1;
  }
  int ndim = static_cast<int>(self->ndim);
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && (flags & PyBUF_C_CONTIGUOUS) != PyBUF_C_CONTIGUOUS &&
      ndim > 1) {
    PyErr_SetString(PyExc_BufferError, "this memory is C-contiguous, not Fortran-contiguous");
    return -1;
  }
  view->buf = reinterpret_cast<void*>(self->address);
  view->len = static_cast<Py_ssize_t>(self->nbytes);
  view->readonly = self->readonly;
  view->itemsize = self->itemsize;
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(self->format) : nullptr;
  view->ndim = flags & PyBUF_ND ? ndim : 1;
  view->shape = flags & PyBUF_ND ? self->shape : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  view->obj = Py_NewRef(o);
  return 0;
}

PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(ExportObject, address), READONLY, "Where the memory is."},
    {"nbytes", T_ULONGLONG, offsetof(ExportObject, nbytes), READONLY, "Bytes."},
    {"readonly", T_BOOL, offsetof(ExportObject, readonly), READONLY, "Whether it may not be written."},
    {nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_members, members},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(getbuffer)},
    {Py_tp_doc, const_cast<char*>("Host memory as the buffer protocol shows it. Keeps it from being freed or reused.")},
    {0, nullptr},
};

PyType_Spec spec = {"hcq._native.Export", sizeof(ExportObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

PyObject* export_new(PyObject* opaque, PyObject* owner, const ExportView& view) {
  PyObject* o = Export_Type->tp_alloc(Export_Type, 0);
  if (!o) return nullptr;
  ExportObject* self = as_export(o);
  self->generation = g_generation;
  self->address = view.address;
  self->nbytes = view.nbytes;
  self->format = view.format;
  self->itemsize = view.itemsize;
  self->readonly = view.readonly;
  self->ndim = view.shape ? PyTuple_GET_SIZE(view.shape) : 1;
  self->shape = self->ndim < 2 ? self->single : new Py_ssize_t[2 * static_cast<size_t>(self->ndim)];
  self->strides = self->shape + self->ndim;
  self->shape[0] = static_cast<Py_ssize_t>(view.nbytes) / view.itemsize;
  for (Py_ssize_t i = 0; view.shape && i < self->ndim; ++i)
    self->shape[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(view.shape, i));
  Py_ssize_t step = view.itemsize;
  for (Py_ssize_t i = self->ndim; i-- > 0;) {
    self->strides[i] = step;
    step *= self->shape[i];
  }
  self->owner = Py_XNewRef(owner);
  if (opaque) {
    pin(opaque);
    self->opaque = opaque;
    if (hcq_buffer_check(opaque)) {
      self->block = reinterpret_cast<HCQBufferObject*>(opaque)->block;
      block_ref(self->block);
    }
  }
  return o;
}

PyObject* memory_keep(PyObject* object) {
  PyObject *opaque = object, *owner = nullptr;
  if (buffer_check(object)) {
    auto* buffer = reinterpret_cast<BufferObject*>(object);
    opaque = (buffer->base ? buffer->base : buffer)->buf;
    owner = buffer->buf;  // of a view: its own handle
  } else if (!hcq_buffer_check(object)) {
    opaque = nullptr;
  }
  if (!opaque) Py_RETURN_NONE;
  return export_new(opaque, owner, ExportView{});
}

PyObject* export_over(PyObject* object, int flags) {
  Py_buffer source;
  if (PyObject_GetBuffer(object, &source, flags)) return nullptr;
  ExportView view;
  view.address = reinterpret_cast<uint64_t>(source.buf);
  view.nbytes = static_cast<uint64_t>(source.len);
  view.readonly = source.readonly;
  PyObject* o = export_new(nullptr, nullptr, view);
  if (o)
    as_export(o)->source = source;
  else
    PyBuffer_Release(&source);
  return o;
}

bool export_check(PyObject* o) { return Py_TYPE(o) == Export_Type; }
uint64_t export_address(PyObject* o) { return as_export(o)->address; }
uint64_t export_bytes(PyObject* o) { return as_export(o)->nbytes; }
bool export_readonly(PyObject* o) { return as_export(o)->readonly; }

int init_export(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (!type) return -1;
  Export_Type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "Export", type);
}

}  // namespace hcq
