// The pool of host memory behind the CPU allocators: few large mappings, cut up with 64-byte alignment (4096 from one
// page on) and faulted in before use, so that neither buffers nor copies pay for mappings and cold pages.
// What does not live here: caching freed buffers by size (cache.hpp), reference counts (block.cpp).
#pragma once
#include "core/base.hpp"

namespace hcq {

struct PoolStats {
  uint64_t mapped;     // bytes of address space held
  uint64_t populated;  // bytes of it that have pages
  uint64_t used;       // bytes handed out, after rounding
  uint64_t mappings;
};

// All functions may be called by any thread, with or without the GIL. In a forked child the pool starts empty.
// Memory of `size` > 0 bytes, or nullptr when the system has none; `place` is to be given back to pool_free.
void* pool_alloc(uint64_t size, void** place);
void pool_free(void* address, void* place);
void pool_trim();  // gives pages and mappings that nothing uses back to the system
PoolStats pool_stats();

}  // namespace hcq
