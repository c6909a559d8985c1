// Where the calling thread's Python code is, as one address. What is made of it is user_line.cpp's.
#pragma once
#include <Python.h>

namespace hcq {

// The address of the instruction that a Python frame is at: no other living code has it.
const void* place_of(PyFrameObject* frame);

// Where CPython's own frames keep that address, in bytes; 0 where this CPython isn't known to.
extern size_t g_place_offset;
// Finds it out: called from Python code, once, where the module is made.
void init_place();

// The same of the calling thread's innermost frame, by four loads; null where that isn't known, in a thread without
// Python code, and sometimes otherwise. With the GIL.
inline const void* place_here() {
  if (__builtin_expect(!g_place_offset, 0)) return nullptr;
#if PY_VERSION_HEX >= 0x030d0000
  const PyThreadState* thread = PyThreadState_GetUnchecked();
  const void* frame = thread ? thread->current_frame : nullptr;
#else
  const PyThreadState* thread = _PyThreadState_UncheckedGet();
  const void* frame = thread ? thread->cframe->current_frame : nullptr;
#endif
  return frame ? *reinterpret_cast<const void* const*>(static_cast<const char*>(frame) + g_place_offset) : nullptr;
}

}  // namespace hcq
