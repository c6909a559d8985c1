// Definitions that other files will bring; weak, so that theirs win without a change here.
#include "core/base.hpp"

namespace hcq {

__attribute__((weak)) uint32_t g_generation = 1;

}  // namespace hcq
