// The headers of safetensors files, read fast where they are as writers make them.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {
void bind_formats(nanobind::module_& m);
}
