// Reserving what blocks run in.
#include "run/room.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace cudacpu {

namespace {

constexpr uint64_t kFrameBytes = uint64_t{1} << 30;  // address space; memory is taken as it is touched
// A .shared address has 32 bits, and is added with its sign: whatever it is, it lands in the block's shared memory or
// on pages that fault.
constexpr uint64_t kSharedReach = uint64_t{1} << 31;
constexpr uint64_t kSharedAlign = 128;
constexpr uint64_t kGuard = 65536;

uint64_t whole_pages(uint64_t bytes) {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Grows a span where it is too small.
bool grow(Span& span, uint64_t bytes) {
  return bytes <= span.bytes() || span.reserve(std::max<uint64_t>(bytes, span.bytes() * 2), kGuard);
}

}  // namespace

Span::~Span() {
  if (base_) munmap(base_ - guard_, bytes_ + 2 * guard_);
}

bool Span::reserve(size_t bytes, size_t guard) {
  if (base_) munmap(base_ - guard_, bytes_ + 2 * guard_);
  base_ = nullptr;
  bytes_ = 0;
  bytes = whole_pages(bytes);
  guard = whole_pages(guard);
  void* at = mmap(nullptr, bytes + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  auto begin = static_cast<uint8_t*>(at) + guard;
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(at, bytes + 2 * guard);
    return false;
  }
  base_ = begin;
  bytes_ = bytes;
  guard_ = guard;
  return true;
}

bool Room::prepare(const Needs& needs) {
  // No more than was needed once, so that what is outside faults. Where address space is limited (ulimit -v) a smaller
  // reach has to do.
  uint64_t shared = std::max<uint64_t>(needs.shared, 1);
  if (shared > shared_.bytes() && !shared_.reserve(shared, kSharedReach) && !shared_.reserve(shared, kGuard)) {
    return false;
  }
  if (!frames_.begin() && !frames_.reserve(kFrameBytes, kGuard) && !frames_.reserve(kFrameBytes >> 6, kGuard)) {
    return false;
  }
  // It ends where the guard begins.
  shared_at_ = shared_.end() - (needs.shared + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
  return grow(local_, uint64_t{needs.local} * needs.threads) && grow(scratch_, needs.scratch) &&
         grow(threads_, uint64_t{needs.threads} * sizeof(Thread));
}

}  // namespace cudacpu
