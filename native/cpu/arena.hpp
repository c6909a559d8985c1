// Memory for loaded code and its data, sub-allocated from few large mappings. Code is written through a second mapping
// of the same pages: no page is both writable and executable at one address (unless the system has no memory files),
// and nothing is re-protected while other threads run code beside it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/base.hpp"

namespace hcq {

// A range of a span. `write` is where the same bytes can be written: for data it is `address` itself.
struct Piece {
  uint8_t* address = nullptr;
  uint8_t* write = nullptr;
  size_t size = 0;
  bool zero = false;  // never used before, so all zero without anyone clearing it
};

class Ranges {  // first-fit allocation of offsets, in multiples of 64
 public:
  explicit Ranges(size_t size) { free_[0] = size; }
  bool take(size_t size, size_t align, size_t* offset);
  void give(size_t offset, size_t size);

 private:
  std::map<size_t, size_t> free_;  // offset -> size, neighbours merged
};

// One reservation of addresses: code first, then data, so that each reaches the other with 32-bit displacements. Pages
// are committed in steps as they are needed. Not thread-safe: the loader's lock covers it.
class Span {
 public:
  static Span* create(size_t code_size, size_t data_size, std::string* error);
  bool take_code(size_t size, size_t align, Piece*);
  bool take_data(size_t size, size_t align, Piece*);  // cleared only where `zero` says so
  void give_code(const Piece&);
  void give_data(const Piece&);
  size_t code_capacity() const { return code_size_; }
  size_t data_capacity() const { return data_size_; }

 private:
  Span(size_t code_size, size_t data_size)
      : code_size_(code_size), data_size_(data_size), code_(code_size), data_(data_size) {}
  bool commit_code(size_t end);
  bool commit_data(size_t end);

  size_t code_size_, data_size_;
  Ranges code_, data_;
  uint8_t* base_ = nullptr;             // code at base_, data at base_ + code_size_
  uint8_t* alias_ = nullptr;            // where code is written; equal to base_ when there is no second mapping
  int file_ = -1;                       // memory file behind the code; -1 when there is no second mapping
  size_t code_end_ = 0, data_end_ = 0;  // committed so far
  size_t data_used_ = 0;                // handed out at some time
};

}  // namespace hcq
