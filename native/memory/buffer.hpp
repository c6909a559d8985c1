// What the files of hcq.Buffer share: buffer.cpp makes them, buffer_memory.cpp allocates, buffer_methods.cpp copies and
// exports.
#pragma once
#include "memory/lru.hpp"

namespace hcq {

inline BufferObject* as_buffer_object(PyObject* o) { return reinterpret_cast<BufferObject*>(o); }
inline PyObject* as_object(BufferObject* b) { return reinterpret_cast<PyObject*>(b); }
inline BufferObject* root_of(BufferObject* b) { return b->base ? b->base : b; }

// What a dtype argument means: the dtype to show, its item size, whether it is an image.
struct DtypeEntry {
  PyObject* given;  // strong: the address is the key
  PyObject* dtype;
  uint64_t itemsize;
  PyObject* image_options;  // for images: the options they imply; else null
};
// Good until the next call; nullptr with an exception.
const DtypeEntry* dtype_entry(PyObject* given);

// Allocates a root (with a caller's `opaque`, which may be null) or a view and its root; -1 with an exception.
int buffer_allocate(BufferObject* self, PyObject* opaque);
// Makes a view's handle on the memory of its (allocated) root; -1 with an exception.
int buffer_materialize(BufferObject* self);
// Gives up the memory of a root, or a view's handle; never leaves an exception.
void buffer_release(BufferObject* self);
BufferObject* buffer_view(BufferObject* self, uint64_t size, PyObject* dtype, uint64_t offset);
// The buffer is usable and allocated; else false with an exception that names what was tried.
bool buffer_ready(BufferObject* self, const char* what);
// Waits for the work queued on the buffer's device.
int buffer_wait(BufferObject* self);
int buffer_copyin(BufferObject* self, PyObject* source);

extern PyMethodDef buffer_methods[];
extern PyMethodDef buffer_functions[];  // of the module
extern PyBufferProcs buffer_procs;

}  // namespace hcq
