// The functions of hcq._native for the OpenCL driver.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq {
void bind_opencl(nanobind::module_& m);
}
