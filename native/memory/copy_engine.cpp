// Copies of host memory.
#include "memory/copy_engine.hpp"

#include <cstring>

namespace hcq {

void copy_bytes(void* dest, const void* src, uint64_t size) { std::memmove(dest, src, size); }

}  // namespace hcq
