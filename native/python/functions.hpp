// Functions of _native that belong to no type.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {
void init_native_functions(nanobind::module_& m);
}  // namespace hcq
