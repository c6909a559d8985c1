// One thread's copying of memory that is too large for the caches. Sharing a copy among threads is for the callers.
#pragma once
#include "core/base.hpp"

namespace hcq {

uint64_t large_copy();  // bytes from which a copy leaves the caches, so that streaming and sharing pay

// Copies `size` bytes of a copy that is `whole` bytes long in all; the ranges don't overlap.
void copy_part(void* dest, const void* src, uint64_t size, uint64_t whole);

}  // namespace hcq
