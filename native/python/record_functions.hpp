// Functions of _native by which hcq.profiling starts, reads and ends recording (core/record.hpp).
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {
void init_record_functions(nanobind::module_& m);
}  // namespace hcq
