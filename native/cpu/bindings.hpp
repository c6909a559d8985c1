// Python's way to the loader without a queue: for tests and tools. Launches go through the command processor.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {

void bind_cpu(nanobind::module_&);

}  // namespace hcq
