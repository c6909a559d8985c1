// The one file that looks into CPython's frames (place.hpp): the public functions for that are five calls and cost a
// launch 6 ns, more than half of what recording may. The layout is that of the headers of the version this is built
// for, and is held against the public functions before it is believed.
#define Py_BUILD_CORE_MODULE 1
#include "python/place.hpp"

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000 && !defined(Py_GIL_DISABLED)
#define HCQ_KNOWN_FRAMES 1
#include <internal/pycore_frame.h>
#endif

namespace hcq {

size_t g_place_offset = 0;

const void* place_of(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  const void* at =
      reinterpret_cast<const char*>(code) + offsetof(PyCodeObject, co_code_adaptive) + PyFrame_GetLasti(frame);
  Py_DECREF(code);  // its frame holds it
  return at;
}

void init_place() {
#ifdef HCQ_KNOWN_FRAMES
#if PY_VERSION_HEX >= 0x030d0000
  g_place_offset = offsetof(_PyInterpreterFrame, instr_ptr);
#else
  g_place_offset = offsetof(_PyInterpreterFrame, prev_instr);
#endif
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  if (!frame || place_of(frame) != place_here()) g_place_offset = 0;
#endif
}

}  // namespace hcq
