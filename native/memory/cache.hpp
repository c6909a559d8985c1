// Freed blocks by (size, kind of options): most recent first when handed out, oldest first when dropped.
// A plain container of opaque objects: it calls no Python and takes no lock (its owner holds the GIL).
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

namespace hcq {

struct CachedBlock {
  PyObject* opaque;   // strong
  PyObject* options;  // strong; what the driver's _free will be given
  uint64_t size;
  uint32_t kind;
  CachedBlock *older, *newer;  // by time of the free, over all sizes
  CachedBlock *below, *above;  // the stack of one (size, kind)
};

class BlockCache {
 public:
  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() {
    for (CachedBlock* spare = spares_; spare;) {
      CachedBlock* next = spare->above;
      delete spare;
      spare = next;
    }
  }

  uint64_t bytes() const { return bytes_; }
  uint64_t count() const { return count_; }
  CachedBlock* oldest() const { return oldest_; }

  // Takes over both references.
  void push(PyObject* opaque, uint64_t size, uint32_t kind, PyObject* options) {
    CachedBlock* block = spares_;
    if (block)
      spares_ = block->above;
    else
      block = new CachedBlock;
    Bucket& bucket = find_or_add(size, kind);
    *block = CachedBlock{opaque, options, size, kind, newest_, nullptr, bucket.top, nullptr};
    if (bucket.top) bucket.top->above = block;
    bucket.top = block;
    (newest_ ? newest_->newer : oldest_) = block;
    newest_ = block;
    bytes_ += size;
    ++count_;
  }

  // The block freed last of this size and kind; false when there is none. Hands over both references.
  bool pop(uint64_t size, uint32_t kind, PyObject** opaque, PyObject** options) {
    if (!count_) return false;
    Bucket* bucket = find(size, kind);
    if (!bucket || !bucket->top) return false;
    CachedBlock* block = bucket->top;
    *opaque = block->opaque;
    *options = block->options;
    remove(block, bucket);
    return true;
  }

  // The block that was freed longest ago; false when empty. Hands over both references.
  bool pop_oldest(PyObject** opaque, uint64_t* size, PyObject** options) {
    CachedBlock* block = oldest_;
    if (!block) return false;
    *opaque = block->opaque;
    *size = block->size;
    *options = block->options;
    remove(block, find(block->size, block->kind));
    return true;
  }

 private:
  struct Bucket {
    uint64_t size = 0;  // 0: never used
    uint32_t kind = 0;
    CachedBlock* top = nullptr;
  };

  static uint64_t hash(uint64_t size, uint32_t kind) {
    uint64_t h = (size ^ (uint64_t{kind} << 40)) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 32);
  }

  Bucket* find(uint64_t size, uint32_t kind) {
    if (table_.empty()) return nullptr;
    for (uint64_t i = hash(size, kind);; ++i) {
      Bucket& b = table_[i & (table_.size() - 1)];
      if (b.size == size && b.kind == kind) return &b;
      if (b.size == 0) return nullptr;
    }
  }

  Bucket& find_or_add(uint64_t size, uint32_t kind) {
    if (Bucket* b = find(size, kind)) return *b;
    if ((used_ + 1) * 4 > table_.size() * 3) rebuild();
    return add(size, kind);
  }

  Bucket& add(uint64_t size, uint32_t kind) {
    for (uint64_t i = hash(size, kind);; ++i) {
      Bucket& b = table_[i & (table_.size() - 1)];
      if (b.size == 0) {
        b.size = size;
        b.kind = kind;
        ++used_;
        return b;
      }
    }
  }

  // Buckets that ran empty stay until the table fills up; then only those in use are carried over.
  void rebuild() {
    size_t in_use = 0;
    for (const Bucket& b : table_) in_use += b.top != nullptr;
    size_t size = 16;
    while (size < (in_use + 1) * 4) size *= 2;
    std::vector<Bucket> old(size);
    old.swap(table_);
    used_ = 0;
    for (const Bucket& b : old)
      if (b.top) add(b.size, b.kind).top = b.top;
  }

  void remove(CachedBlock* block, Bucket* bucket) {
    (block->newer ? block->newer->older : newest_) = block->older;
    (block->older ? block->older->newer : oldest_) = block->newer;
    (block->above ? block->above->below : bucket->top) = block->below;
    if (block->below) block->below->above = block->above;
    bytes_ -= block->size;
    --count_;
    block->above = spares_;
    spares_ = block;
  }

  std::vector<Bucket> table_;  // open addressing, a power of two
  size_t used_ = 0;
  CachedBlock* oldest_ = nullptr;
  CachedBlock* newest_ = nullptr;
  CachedBlock* spares_ = nullptr;  // linked by `above`
  uint64_t bytes_ = 0;
  uint64_t count_ = 0;
};

}  // namespace hcq
