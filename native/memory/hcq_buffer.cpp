// hcq.HCQBuffer: a handle on device memory by address, which is what programs and queues take.
#include <Python.h>
#include <structmember.h>

#include "memory/internal.hpp"

namespace hcq {

PyTypeObject* HCQBuffer_Type = nullptr;

namespace {

// Handles come and go with every buffer: some dead ones are kept. Guarded by the GIL.
constexpr int kKept = 64;
PyObject* g_kept[kKept];
int g_kept_count = 0;

HCQBufferObject* make(PyTypeObject* type) {
  PyObject* o;
  if (type == HCQBuffer_Type && g_kept_count) {
    o = g_kept[--g_kept_count];
    PyObject_Init(o, type);
  } else {
    o = type->tp_alloc(type, 0);
    if (!o) return nullptr;
  }
  HCQBufferObject* self = reinterpret_cast<HCQBufferObject*>(o);
  self->va_addr = self->size = 0;
  self->block = nullptr;
  self->weakrefs = nullptr;
  self->generation = g_generation;
  self->freed = self->opaque = false;
  self->asked = 0;
  return self;
}

void dealloc(PyObject* o) {
  HCQBufferObject* self = reinterpret_cast<HCQBufferObject*>(o);
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  if (self->block) block_unref(self->block);
  PyTypeObject* type = Py_TYPE(o);
  if (type == HCQBuffer_Type && g_kept_count < kKept)
    g_kept[g_kept_count++] = o;
  else
    type->tp_free(o);
  Py_DECREF(type);
}

int init(PyObject* o, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"va_addr", "size", nullptr};
  HCQBufferObject* self = reinterpret_cast<HCQBufferObject*>(o);
  PyObject *address, *size;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:HCQBuffer", const_cast<char**>(names), &address, &size)) return -1;
  uint64_t a, n;
  if (!to_u64(address, "va_addr", &a) || !to_u64(size, "size", &n)) return -1;
  self->va_addr = a;
  self->size = n;
  return 0;
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) { return reinterpret_cast<PyObject*>(make(type)); }

PyObject* repr(PyObject* o) {
  HCQBufferObject* self = reinterpret_cast<HCQBufferObject*>(o);
  return PyUnicode_FromFormat("<HCQBuffer of %llu bytes at %p>", static_cast<unsigned long long>(self->size),
                              reinterpret_cast<void*>(self->va_addr));
}

PyMemberDef members[] = {
    {"va_addr", T_ULONGLONG, offsetof(HCQBufferObject, va_addr), 0, "Address on the device."},
    {"size", T_ULONGLONG, offsetof(HCQBufferObject, size), 0, "Bytes."},
    {"opaque", T_BOOL, offsetof(HCQBufferObject, opaque), 0,
     "Whether nothing is at the address: an image, which only its own device's commands know. A driver says so."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(HCQBufferObject, weakrefs), READONLY, nullptr},
    {nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("HCQBuffer(va_addr, size)\n--\n\n"
                                  "A handle on device memory: `va_addr`, its address there, and `size` in bytes.\n\n"
                                  "Handles that an allocator made hold their memory; one made by hand holds nothing. "
                                  "Threads may share it.")},
    {0, nullptr},
};

PyType_Spec spec = {"hcq.HCQBuffer", sizeof(HCQBufferObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

PyObject* hcq_buffer_new(uint64_t va_addr, uint64_t size, Block* block) {
  HCQBufferObject* self = make(HCQBuffer_Type);
  if (!self) {
    block_unref(block);
    return nullptr;
  }
  self->va_addr = va_addr;
  self->size = size;
  self->block = block;
  return reinterpret_cast<PyObject*>(self);
}

bool hcq_buffer_usable(PyObject* handle) {
  uint32_t generation = reinterpret_cast<HCQBufferObject*>(handle)->generation;
  if (generation == g_generation) return true;
  set_forked(generation, "a buffer");
  return false;
}

int init_hcq_buffer(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (!type) return -1;
  HCQBuffer_Type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "HCQBuffer", type);
}

}  // namespace hcq
