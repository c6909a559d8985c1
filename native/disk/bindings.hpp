// What Python sees of files and engines.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {
void bind_disk(nanobind::module_& m);
}
