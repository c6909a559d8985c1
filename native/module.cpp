// The extension module hcq._native: collects what the other files define. No logic lives here.
#include <nanobind/nanobind.h>

#include "core/base.hpp"
#include "cpu/bindings.hpp"
#include "memory/memory.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Native parts of hcq: signals, queues, the command processor, memory, launches.";
  hcq::install_fork_handler();
  if (hcq::init_memory(m.ptr())) throw nb::python_error();
  hcq::bind_cpu(m);
}
