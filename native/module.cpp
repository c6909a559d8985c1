// The extension module hcq._native: collects what the other files define. No logic lives here.
#include <nanobind/nanobind.h>

#include "cpu/bindings.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Native parts of hcq: signals, queues, the command processor, memory, launches.";
  hcq::bind_cpu(m);
}
