// The watch point: whether somebody looks at what is submitted and touched (a capture, the validation layer), and how
// he is told. What he does about it is Python (hcq.runtime.watch).
#pragma once
#include <Python.h>

#include <atomic>
#include <cstdint>

namespace hcq {

// 0: nobody. Bits say who (hcq.runtime.watch). Written with the GIL, read by entries that hold it too: relaxed is
// enough.
extern std::atomic<uint32_t> g_watching;
inline bool watching() { return __builtin_expect(g_watching.load(std::memory_order_relaxed) != 0, 0); }

enum class Told : int8_t { failed = -1, go_on = 0, taken = 1 };
// Calls hcq.runtime.watch.<event>(...), arguments as Py_BuildValue takes them, in parentheses. failed: an exception is
// set; taken: a capture has recorded it, so nothing is to be queued. With the GIL, which it may give up meanwhile.
Told tell(const char* event, const char* format, ...);
// The same for finalizers: leaves an exception that is set alone, and drops those of its own.
void tell_quietly(const char* event, const char* format, ...);

}  // namespace hcq
