// Copies of host memory, on several threads and past the caches where that pays.
#pragma once
#include "core/base.hpp"

namespace hcq {

// Copies `size` bytes; overlapping ranges behave as if read first. Any thread; large copies without the GIL.
void copy_bytes(void* dest, const void* src, uint64_t size);

}  // namespace hcq
