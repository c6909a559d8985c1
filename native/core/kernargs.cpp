// The kernargs arena (kernargs.hpp).
#include "core/kernargs.hpp"

#include <cstdlib>
#include <new>

namespace hcq {

namespace {
constexpr size_t kChunk = 256 << 10;
constexpr uint64_t kKept = 16ull << 20;  // what clients filled last is never handed out again
}  // namespace

KernargsArena::~KernargsArena() {
  std::free(current_);
  for (auto& c : aging_) std::free(c.memory);
  for (auto& c : stamped_) std::free(c.memory);
}

uint8_t* KernargsArena::take(uint32_t bytes) {
  size_t need = (static_cast<size_t>(bytes) + 63) & ~size_t{63};
  if (need == 0) need = 64;
  if (!current_ || offset_ + need > size_) {
    if (current_) aging_.push_back(Chunk{current_, size_, filled_, Stamp()});
    current_ = nullptr;
    // Old enough: from now on only what is queued already may still read it.
    while (!aging_.empty() && filled_ - aging_.front().end >= kKept) {
      Chunk c = std::move(aging_.front());
      aging_.pop_front();
      c.stamp = Stamp::now();
      stamped_.push_back(std::move(c));
    }
    if (!stamped_.empty() && stamped_.front().size >= need && stamped_.front().stamp.passed()) {
      current_ = stamped_.front().memory;
      size_ = stamped_.front().size;
      stamped_.pop_front();
    } else {
      size_ = need > kChunk ? need : kChunk;
      current_ = static_cast<uint8_t*>(std::aligned_alloc(64, size_));
      if (!current_) throw std::bad_alloc();
    }
    offset_ = 0;
  }
  uint8_t* p = current_ + offset_;
  offset_ += need;
  filled_ += need;
  return p;
}

}  // namespace hcq
