// The library's own threads. What does not live here: what they do.
#pragma once
#include <unistd.h>

#include <functional>
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace cudacpu {

// Starts a thread that ends with the process at the latest, and takes no signals but those its own faults raise: the
// others are for the program's threads. False where the system has no more. The name has at most 15 characters.
bool start_thread(const char* name, std::function<void()> body);

// Calls the compiler, which is Python's. A thread that comes for the interpreter's lock while the interpreter ends is
// unwound by Python (before 3.14): not out of a destructor, nor past callers that catch everything, either of which
// aborts the process. It sleeps until the process has ended.
template <class Call>
auto into_python(Call call) {
#ifdef __GLIBCXX__
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  return call();
#endif
}

}  // namespace cudacpu
