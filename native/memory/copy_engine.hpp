// Copies of host memory, on several threads and past the caches where that pays.
#pragma once
#include "core/base.hpp"

namespace hcq {

// Copies `size` bytes; overlapping ranges behave as if read first. Any thread; large copies without the GIL.
void copy_bytes(void* dest, const void* src, uint64_t size);

// Calls fn(context, i) for i in 0..count-1, on the calling thread and on helpers where there are idle ones. Returns
// when all calls have. fn is short, doesn't block and doesn't touch Python.
void in_parallel(uint64_t count, void (*fn)(void* context, uint64_t i), void* context);

}  // namespace hcq
