// Large copies, shared among the threads of the command processor. How one thread copies its part is core/stream.cpp.
#include "memory/copy_engine.hpp"

#include <algorithm>
#include <cstring>

#include "core/scheduler.hpp"
#include "core/stream.hpp"

namespace hcq {

namespace {

constexpr uint64_t kPiece = 1ull << 20;

struct Copy {
  char* dest;
  const char* src;
  uint64_t size;
};

void copy_piece(void* context, uint64_t i) {
  const Copy& c = *static_cast<Copy*>(context);
  uint64_t at = i * kPiece;
  copy_part(c.dest + at, c.src + at, std::min(kPiece, c.size - at), c.size);
}

}  // namespace

void copy_bytes(void* dest, const void* src, uint64_t size) {
  uint64_t d = reinterpret_cast<uint64_t>(dest), s = reinterpret_cast<uint64_t>(src);
  bool apart = d - s >= size && s - d >= size;  // unsigned: the distance either way around
  if (size < large_copy() || !apart) {
    std::memmove(dest, src, size);
    return;
  }
  Copy copy{static_cast<char*>(dest), static_cast<const char*>(src), size};
  parallel_for((size + kPiece - 1) / kPiece, copy_piece, &copy);
}

}  // namespace hcq
