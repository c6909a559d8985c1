// _native's Vulkan part, for hcq.drivers.vulkan.
#pragma once
#include <nanobind/nanobind.h>

namespace hcq::vk {
void bind(nanobind::module_& m);
}
