// Memory for kernargs that clients fill for their own queues. Handed out in order from chunks; a chunk is used again
// only when 16 MiB more have been filled and everything queued by then has finished.
#pragma once
#include <deque>
#include <vector>

#include "core/retire.hpp"

namespace hcq {

class KernargsArena {  // callers hold the GIL
 public:
  ~KernargsArena();
  uint8_t* take(uint32_t bytes);  // 64-byte aligned; throws std::bad_alloc

 private:
  struct Chunk {
    uint8_t* memory;
    size_t size;
    uint64_t end;  // bytes ever filled when the chunk was full
    Stamp stamp;
  };
  uint8_t* current_ = nullptr;
  size_t size_ = 0, offset_ = 0;
  uint64_t filled_ = 0;
  std::deque<Chunk> aging_, stamped_;
};

}  // namespace hcq
