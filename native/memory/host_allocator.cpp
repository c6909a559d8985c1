// HostAllocator: an LRUAllocator over the pool of host memory, whose handles are HCQBuffers at host addresses.
#include <cstring>

#include "core/record.hpp"
#include "memory/copy_engine.hpp"
#include "memory/lru.hpp"
#include "memory/pool.hpp"
#include "python/watch.hpp"

namespace hcq {

PyTypeObject* HostAllocator_Type = nullptr;

namespace {

constexpr uint64_t kHoldGil = 64 << 10;  // bytes up to which letting other threads run costs more than it gives

HCQBufferObject* as_handle(PyObject* o) {
  if (!hcq_buffer_check(o)) {
    PyErr_Format(PyExc_TypeError, "expected an HCQBuffer of a host device, not %.100s", Py_TYPE(o)->tp_name);
    return nullptr;
  }
  return hcq_buffer_usable(o) ? reinterpret_cast<HCQBufferObject*>(o) : nullptr;
}

PyObject* driver_alloc(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t size;
  if (n < 1 || n > 2) {
    PyErr_Format(PyExc_TypeError, "_alloc() takes size and options (%zd arguments given)", n);
    return nullptr;
  }
  if (!to_size(args[0], &size)) return nullptr;
  Block* block;
  if (size <= kHoldGil) {
    block = block_alloc(size);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    block = block_alloc(size);
    Py_END_ALLOW_THREADS;
  }
  if (!block) {
    PyErr_Format(PyExc_MemoryError, "the system has no %llu bytes of memory left",
                 static_cast<unsigned long long>(size));
    return nullptr;
  }
  return hcq_buffer_new(block->address, size, block);
}

PyObject* driver_free(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (n < 1 || n > 2) {
    PyErr_Format(PyExc_TypeError, "_free() takes opaque and options (%zd arguments given)", n);
    return nullptr;
  }
  if (hcq_buffer_check(args[0])) {
    HCQBufferObject* handle = reinterpret_cast<HCQBufferObject*>(args[0]);
    Block* block = handle->block;
    handle->block = nullptr;
    block_unref(block);
  }
  Py_RETURN_NONE;
}

PyObject* offset(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  PyObject* values[3] = {};
  static const char* const keywords[] = {"buf", "size", "offset"};
  if (!unpack(args, n, kwnames, keywords, 3, 3, "offset", values)) return nullptr;
  HCQBufferObject* handle = as_handle(values[0]);
  uint64_t size, at;
  if (!handle || !to_u64(values[1], "size", &size) || !to_u64(values[2], "offset", &at)) return nullptr;
  return host_offset(handle, size, at);
}

PyObject* as_buffer(PyObject*, PyObject* o) {
  HCQBufferObject* handle = as_handle(o);
  if (!handle || (watching() && tell("exported", "(O)", o) == Told::failed)) return nullptr;
  ExportView view;
  view.address = handle->va_addr;
  view.nbytes = handle->size;
  PyObject* exporter = export_new(o, nullptr, view);
  PyObject* memory = exporter ? PyMemoryView_FromObject(exporter) : nullptr;
  Py_XDECREF(exporter);
  return memory;
}

bool check_copy(HCQBufferObject* handle, const Py_buffer& view) {
  if (static_cast<uint64_t>(view.len) <= handle->size) return true;
  PyErr_Format(PyExc_ValueError, "can't copy %zd bytes: the device memory has %llu", view.len,
               static_cast<unsigned long long>(handle->size));
  return false;
}

// Whoever watches is told; false with his exception.
bool told(const char* event, PyObject* handle, const Py_buffer& view) {
  return !watching() || tell(event, "(Oin)", handle, 0, view.len) != Told::failed;
}

PyObject* copyin(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 2) {
    PyErr_Format(PyExc_TypeError, "copyin() takes dest and src (%zd arguments given)", n);
    return nullptr;
  }
  HCQBufferObject* handle = as_handle(args[0]);
  Py_buffer view;
  if (!handle || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE)) return nullptr;
  int rc = check_copy(handle, view) && told("host_write", args[0], view)
               ? host_copyin(self, handle, view.buf, static_cast<uint64_t>(view.len))
               : -1;
  PyBuffer_Release(&view);
  if (rc) return nullptr;
  Py_RETURN_NONE;
}

PyObject* copyout(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 2) {
    PyErr_Format(PyExc_TypeError, "copyout() takes dest and src (%zd arguments given)", n);
    return nullptr;
  }
  HCQBufferObject* handle = as_handle(args[1]);
  Py_buffer view;
  if (!handle || PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE)) return nullptr;
  int rc = check_copy(handle, view) && told("host_read", args[1], view)
               ? host_copyout(self, view.buf, handle, static_cast<uint64_t>(view.len))
               : -1;
  PyBuffer_Release(&view);
  if (rc) return nullptr;
  Py_RETURN_NONE;
}

// A copy that this thread made, for whoever profiles.
void record_copy(PyObject* device, uint64_t session, bool in, uint64_t size, uint64_t start) {
  PyObject* name = device ? PyObject_GetAttrString(device, "dname") : nullptr;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (text) record_host_copy(session, text, in, size, start);
  PyErr_Clear();
  Py_XDECREF(name);
}

int copy(PyObject* self, void* dest, const void* src, uint64_t size, bool in) {
  PyObject* device = as_lru(self)->device;
  if (device) {
    Py_INCREF(device);
    int rc = wait_device(device);
    Py_DECREF(device);
    if (rc) return rc;
  }
  uint64_t session = recording(), start = session ? now_ns() : 0;
  if (size <= kHoldGil) {
    memmove(dest, src, size);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    copy_bytes(dest, src, size);
    Py_END_ALLOW_THREADS;
  }
  if (__builtin_expect(session != 0, 0)) record_copy(as_lru(self)->device, session, in, size, start);
  return 0;
}

PyMethodDef methods[] = {
    {"_alloc", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(driver_alloc)), METH_FASTCALL,
     "_alloc(size, options)\n--\n\nPooled host memory, pages already there; MemoryError when the system has none."},
    {"_free", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(driver_free)), METH_FASTCALL,
     "_free(opaque, options)\n--\n\nGive up the handle's claim; the pool gets the memory when nobody else holds it."},
    {"offset", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(offset)), METH_FASTCALL | METH_KEYWORDS,
     "offset(buf, size, offset)\n--\n\nA handle on `size` bytes of `buf` from byte `offset` on; it holds the memory "
     "too."},
    {"as_buffer", as_buffer, METH_O,
     "as_buffer(buf)\n--\n\nA memoryview over the memory itself, which stays out of reuse while the view lives."},
    {"copyin", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(copyin)), METH_FASTCALL,
     "copyin(dest, src)\n--\n\nCopy contiguous host memory `src` to `dest` after the work queued on `device`. Blocks."},
    {"copyout", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(copyout)), METH_FASTCALL,
     "copyout(dest, src)\n--\n\nCopy `src` to contiguous host memory `dest` after the work queued on `device`. "
     "Blocks."},
    {nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_doc,
     const_cast<char*>("HostAllocator(device=None)\n--\n\n"
                       "Host memory for any device whose programs run in this process: pooled, faulted in,\n"
                       "aligned to 64 bytes (4096 for 4096 bytes and more), no mapping per buffer. `_buf` is\n"
                       "an HCQBuffer. Threads may share it.")},
    {0, nullptr},
};

PyType_Spec spec = {"hcq._native.HostAllocator", sizeof(LRUObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

PyObject* host_offset(HCQBufferObject* handle, uint64_t size, uint64_t at) {
  if (at > handle->size || size > handle->size - at) {
    PyErr_Format(PyExc_ValueError, "%llu bytes from byte %llu on lie outside of a buffer of %llu bytes",
                 static_cast<unsigned long long>(size), static_cast<unsigned long long>(at),
                 static_cast<unsigned long long>(handle->size));
    return nullptr;
  }
  block_ref(handle->block);
  return hcq_buffer_new(handle->va_addr + at, size, handle->block);
}

PyObject* host_wrap(PyObject* opaque, uint64_t nbytes) {
  PyObject* handle = nullptr;
  uint64_t has;
  if (hcq_buffer_check(opaque)) {
    if (!as_handle(opaque)) return nullptr;
    has = reinterpret_cast<HCQBufferObject*>(opaque)->size;
    handle = Py_NewRef(opaque);
  } else {
    PyObject* exporter = export_over(opaque, PyBUF_WRITABLE);
    if (!exporter) {
      if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError,
                     "opaque must be an HCQBuffer, or writable memory with the buffer protocol, not %.100s",
                     Py_TYPE(opaque)->tp_name);
      return nullptr;
    }
    has = export_bytes(exporter);
    uint64_t address = export_address(exporter);
    Block* block = block_wrap(address, has, exporter);
    Py_DECREF(exporter);
    handle = block ? hcq_buffer_new(address, nbytes, block) : PyErr_NoMemory();
  }
  if (handle && has < nbytes) {
    PyErr_Format(PyExc_ValueError, "the memory given as opaque has %llu bytes, and the buffer needs %llu",
                 static_cast<unsigned long long>(has), static_cast<unsigned long long>(nbytes));
    Py_CLEAR(handle);
  }
  return handle;
}

namespace {
// The memory stays while we wait and copy, even if another thread closes the device meanwhile.
class Kept {
 public:
  explicit Kept(HCQBufferObject* handle) : block_(handle->block) {
    if (block_) block_ref(block_);
  }
  ~Kept() {
    if (block_) block_unref(block_);
  }
  Kept(const Kept&) = delete;

 private:
  Block* block_;
};
}  // namespace

int host_copyin(PyObject* self, HCQBufferObject* dest, const void* src, uint64_t size) {
  Kept kept(dest);
  return copy(self, reinterpret_cast<void*>(dest->va_addr), src, size, true);
}

int host_copyout(PyObject* self, void* dest, HCQBufferObject* src, uint64_t size) {
  Kept kept(src);
  return copy(self, dest, reinterpret_cast<const void*>(src->va_addr), size, false);
}

void host_trim() {
  Py_BEGIN_ALLOW_THREADS;
  pool_trim();
  Py_END_ALLOW_THREADS;
}

int init_host_allocator(PyObject* module) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, reinterpret_cast<PyObject*>(LRUAllocator_Type));
  if (!type) return -1;
  HostAllocator_Type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "HostAllocator", type);
}

}  // namespace hcq
