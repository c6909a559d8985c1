// Telling Python what is submitted and touched (watch.hpp).
#include "python/watch.hpp"

#include <cstdarg>

#include "python/common.hpp"

namespace hcq {

std::atomic<uint32_t> g_watching{0};

namespace {
Told told(const char* event, const char* format, va_list list) {
  Ref arguments(Py_VaBuildValue(format, list));
  Ref module(arguments ? PyImport_ImportModule("hcq.runtime.watch") : nullptr);
  Ref function(module ? PyObject_GetAttrString(module.get(), event) : nullptr);
  Ref result(function ? PyObject_CallObject(function.get(), arguments.get()) : nullptr);
  int taken = result ? PyObject_IsTrue(result.get()) : -1;
  return taken < 0 ? Told::failed : taken ? Told::taken : Told::go_on;
}
}  // namespace

Told tell(const char* event, const char* format, ...) {
  va_list list;
  va_start(list, format);
  Told result = told(event, format, list);
  va_end(list);
  return result;
}

void tell_quietly(const char* event, const char* format, ...) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  va_list list;
  va_start(list, format);
  if (told(event, format, list) == Told::failed) PyErr_Clear();
  va_end(list);
  PyErr_Restore(type, value, trace);
}

}  // namespace hcq
