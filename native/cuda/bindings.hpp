// The functions of hcq._native for the CUDA driver.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq::cuda {
void bind(nanobind::module_& m);
}
