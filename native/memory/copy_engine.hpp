// Copies of host memory, on several threads where that pays.
#pragma once
#include "core/base.hpp"

namespace hcq {

// Copies `size` bytes; overlapping ranges behave as if read first. Any thread, without the GIL for large sizes.
void copy_bytes(void* dest, const void* src, uint64_t size);

}  // namespace hcq
