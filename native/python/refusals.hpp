// Calling libraries of others from the drivers' bindings: without the GIL, and what they refuse as Python's errors.
#pragma once
#include <nanobind/nanobind.h>

#include "core/unavailable.hpp"
#include "python/gil.hpp"

namespace hcq {

[[noreturn]] inline void raise_unavailable(const Unavailable& why) {
  nanobind::object type = nanobind::module_::import_("hcq.errors").attr("DeviceUnavailable");
  nanobind::object error = type(nanobind::str(why.reason.c_str()), nanobind::str(why.hint.c_str()));
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nanobind::python_error();
}

// Calls what may block, without the GIL. What it throws becomes Python's: Unavailable here, and the driver's own
// Failure by `set_error`.
template <class Failure, class Work>
auto call_without_gil(void (*set_error)(const Failure&), Work work) -> decltype(work()) {
  try {
    GilReleased released;
    return work();
  } catch (const Unavailable& why) {
    raise_unavailable(why);
  } catch (const Failure& failure) {
    set_error(failure);
    throw nanobind::python_error();
  }
}

}  // namespace hcq
