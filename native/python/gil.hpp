// Giving the GIL up for a while, and taking it in native threads, for functions that nanobind calls.
//
// A thread that comes for the GIL while the interpreter is being torn down is ended there by Python, which unwinds it.
// That must not leave a destructor, nor pass nanobind's handlers, which catch everything: either aborts the process.
// Such a thread sleeps until the process has ended instead, as Python 3.14 has it.
#pragma once
#include <Python.h>
#include <unistd.h>

#include <exception>  // tells whose C++ library it is
#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace hcq {

template <class Take>
void take_gil(Take take) {
#ifdef __GLIBCXX__
  try {
    take();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  take();
#endif
}

// As nanobind's gil_scoped_release.
class GilReleased {
 public:
  GilReleased() : thread_(PyEval_SaveThread()) {}
  ~GilReleased() {
    take_gil([this] { PyEval_RestoreThread(thread_); });
  }
  GilReleased(const GilReleased&) = delete;

 private:
  PyThreadState* thread_;
};

// As nanobind's gil_scoped_acquire.
class GilTaken {
 public:
  GilTaken() {
    take_gil([this] { state_ = PyGILState_Ensure(); });
  }
  ~GilTaken() { PyGILState_Release(state_); }
  GilTaken(const GilTaken&) = delete;

 private:
  PyGILState_STATE state_{};
};

}  // namespace hcq
