// The memory that one block runs in: shared and local memory, its threads and their coroutine frames. Rooms are kept
// from grid to grid. What does not live here: running the block (block.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

#include "run/abi.hpp"

namespace cudacpu {

// A range of address space, pages of which are there once they are touched; between pages that fault.
class Span {
 public:
  Span() = default;
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();
  // False: the system refused; what was there is gone. `guard` bytes before and after it fault.
  bool reserve(size_t bytes, size_t guard);
  uint8_t* begin() const { return base_; }
  uint8_t* end() const { return base_ + bytes_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0, guard_ = 0;
};

// What a block needs.
struct Needs {
  uint32_t threads, shared, local, scratch;
};

class Room {
 public:
  // Makes room for blocks of one grid. False: the system has no memory for it. Contents are undefined.
  bool prepare(const Needs& needs);

  // Memory of a coroutine frame; null: a block's frames are limited to kFrameBytes.
  void* frame(uint64_t bytes) {
    uint64_t size = (bytes + 63) & ~uint64_t{63};
    if (size > frames_.bytes() - used_) return nullptr;
    void* at = frames_.begin() + used_;
    used_ += size;
    return at;
  }
  void clear_frames() { used_ = 0; }

  uint8_t* shared() const { return shared_at_; }
  uint8_t* local() const { return local_.begin(); }
  uint8_t* scratch() const { return scratch_.begin(); }
  Thread* threads() const { return reinterpret_cast<Thread*>(threads_.begin()); }

 private:
  Span shared_, local_, scratch_, threads_, frames_;
  uint8_t* shared_at_ = nullptr;
  uint64_t used_ = 0;
};

}  // namespace cudacpu
