// Keeping the exception that is set in a thread apart from what Python is called for meanwhile.
#pragma once
#include <Python.h>

namespace hcq {

// The exception that is set in this thread, taken away and normalised: new reference, null where there is none.
inline PyObject* take_error() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return nullptr;
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_DECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

// Sets it again, in place of what is set now; takes the reference over.
inline void put_error(PyObject* error) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(error);
#else
  if (!error) {
    PyErr_Clear();
    return;
  }
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(error))), error, PyException_GetTraceback(error));
#endif
}

// Keeps an exception apart while a finalizer calls Python, whose own exceptions are dropped.
class ErrorKept {
 public:
  ErrorKept() : error_(PyErr_Occurred() ? take_error() : nullptr) {}
  ~ErrorKept() { put_error(error_); }
  ErrorKept(const ErrorKept&) = delete;
  ErrorKept& operator=(const ErrorKept&) = delete;

 private:
  PyObject* error_;
};

}  // namespace hcq
