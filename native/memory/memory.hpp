// Host memory blocks and the Python objects over them, as other native files see them.
#pragma once
#include <Python.h>

#include "core/base.hpp"

namespace hcq {

// A piece of host memory, reference counted: handles (HCQBuffer), exports and whatever native code reads it outside a
// queue hold a reference. The count is atomic because the last release may happen in a thread without the GIL.
struct Block {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t address = 0;
  uint64_t size = 0;          // bytes asked for; what the pool reserved may be more
  PyObject* owner = nullptr;  // keeps a caller's memory alive; null for our own
  void* place = nullptr;      // the pool's
};

// A block of our own; nullptr when the system has no memory. May be called without the GIL, and takes long (pages are
// faulted in) for large sizes. Contents are undefined.
Block* block_alloc(uint64_t size);
// A block over a caller's memory; takes a new reference to `owner`. Needs the GIL.
Block* block_wrap(uint64_t address, uint64_t size, PyObject* owner);
inline void block_ref(Block* block) {
  // relaxed: whoever adds a reference holds one
  if (block) block->refs.fetch_add(1, std::memory_order_relaxed);
}
// Drops a reference; the last one gives the memory back once queued work has passed. Needs the GIL where there is an
// owner. Blocks inherited through fork are left alone.
void block_unref(Block* block);

// hcq.HCQBuffer: what programs and queues take. `_buf` of buffers on the CPU devices.
struct HCQBufferObject {
  PyObject_HEAD uint64_t va_addr;
  uint64_t size;  // bytes
  Block* block;   // may be null for a handle made by hand, and after _free
  PyObject* weakrefs;
  uint32_t generation;
  bool freed;      // an allocator has it back: in its cache, waiting for queued work, or really freed
  bool opaque;     // nothing is at its address, as of an image: only its device's own commands know what that means
  uint64_t asked;  // bytes that an allocator's alloc was asked for when it handed this out; 0 where none did
};
extern PyTypeObject* HCQBuffer_Type;
// A handle; takes over the caller's reference on `block` (which may be null), also when it fails.
PyObject* hcq_buffer_new(uint64_t va_addr, uint64_t size, Block* block);
inline bool hcq_buffer_check(PyObject* o) {
  return Py_TYPE(o) == HCQBuffer_Type || PyType_IsSubtype(Py_TYPE(o), HCQBuffer_Type);
}

inline bool hcq_buffer_opaque(PyObject* o) {
  return hcq_buffer_check(o) && reinterpret_cast<HCQBufferObject*>(o)->opaque;
}

// What keeps the memory of a Buffer or a handle, a new object: while it lives that is neither freed nor handed out
// again, whatever happens to the Buffer. None for anything else, or where nothing is allocated.
PyObject* memory_keep(PyObject* object);

// Sets ForkedDeviceError and returns false for a handle inherited through fork.
bool hcq_buffer_usable(PyObject* handle);

struct DeviceRecord;

// hcq.Buffer. The launch path reads `buf`, `device` and `generation`; the rest belongs to memory/buffer*.cpp.
struct BufferObject {
  PyObject_HEAD PyObject* buf;  // `_buf`: the driver's handle; null while not allocated
  PyObject* device;             // str, canonical
  uint32_t generation;          // of the process that made it
  bool survives_fork;           // DISK and NPY go on working in a forked child
  bool owned;                   // root: we allocated `buf`, and free it
  bool closed;                  // root: its device was closed
  bool linked;                  // is on a list: of live roots, or of its root's allocated views
  uint64_t size;                // elements
  uint64_t nbytes;
  uint64_t offset;         // bytes into the root
  PyObject* dtype;         // anything with an itemsize
  PyObject* options;       // BufferOptions or None (null until set)
  PyObject* allocator;     // root: set while allocated
  PyObject* shape;         // tuple, or null: flat
  BufferObject* base;      // root of a view, else null; strong
  DeviceRecord* record;    // counters of the device
  BufferObject* previous;  // live roots, or allocated views of one root
  BufferObject* next;
  BufferObject* views;  // root: its allocated views
  int64_t lb_refcount;
  PyObject* interface_export;  // pins the memory once __array_interface__ gave its address away; or null
  PyObject* weakrefs;
};
extern PyTypeObject* Buffer_Type;
inline bool buffer_check(PyObject* o) { return Py_TYPE(o) == Buffer_Type || PyType_IsSubtype(Py_TYPE(o), Buffer_Type); }
// Sets ForkedDeviceError and returns false for a buffer inherited through fork.
bool buffer_usable(BufferObject* buffer);

int init_memory(PyObject* module);  // registers HCQBuffer, Buffer, LRUAllocator, HostAllocator and their functions

}  // namespace hcq
