// Reserving what blocks run in.
#include "room.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace cudacpu {

namespace {

constexpr uint64_t kFrameBytes = uint64_t{1} << 30;     // address space; memory is taken as it is touched
constexpr uint64_t kSharedBytes = uint64_t{256} << 10;  // no device has more in a block
// A .shared address has 32 bits: whatever it is, it lands in the block's shared memory or on pages that fault.
constexpr uint64_t kSharedReach = uint64_t{1} << 32;
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
  if (base_) munmap(base_, mapped_);
}

bool Span::reserve(size_t bytes, size_t guard) {
  if (base_) munmap(base_, mapped_);
  base_ = nullptr;
  bytes_ = mapped_ = 0;
  bytes = whole_pages(bytes);
  guard = whole_pages(guard);
  void* at = mmap(nullptr, bytes + guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(at, bytes + guard);
    return false;
  }
  base_ = static_cast<uint8_t*>(at);
  bytes_ = bytes;
  mapped_ = bytes + guard;
  return true;
}

bool Room::prepare(const Needs& needs) {
  // Where address space is limited (ulimit -v) a smaller reach has to do.
  if (!shared_.begin() && !shared_.reserve(kSharedBytes, kSharedReach) && !shared_.reserve(kSharedBytes, kGuard)) {
    return false;
  }
  if (!frames_.begin() && !frames_.reserve(kFrameBytes, kGuard) && !frames_.reserve(kFrameBytes >> 6, kGuard)) {
    return false;
  }
  if (needs.shared > kSharedBytes) return false;
  // It ends where the guard begins.
  shared_at_ = shared_.end() - (needs.shared + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
  return grow(local_, uint64_t{needs.local} * needs.threads) && grow(scratch_, needs.scratch) &&
         grow(threads_, uint64_t{needs.threads} * sizeof(Thread));
}

}  // namespace cudacpu
