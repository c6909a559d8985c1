// Memory from the system: see arena.hpp.
#include "memory/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <deque>

namespace cudacpu {
namespace {

constexpr size_t page = 4096;
constexpr size_t guard = 64 << 10;     // untouchable bytes at each side of a slab
constexpr size_t granule = 512;        // of blocks
constexpr size_t apart_granule = 256;  // the least alignment that the API promises
constexpr size_t slab_bytes = 2 << 20;
constexpr size_t quarantine = 256;  // mappings kept untouchable after their block was given back

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Keeps the addresses of a freed block untouchable for a while, so that late accesses are seen.
void bury(uint64_t base, size_t bytes) {
  static std::mutex lock;  // guards `graves`
  static auto* graves = new std::deque<std::pair<uint64_t, size_t>>();
  mmap(reinterpret_cast<void*>(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  std::lock_guard<std::mutex> hold(lock);
  graves->emplace_back(base, bytes);
  if (graves->size() <= quarantine) return;
  munmap(reinterpret_cast<void*>(graves->front().first), graves->front().second);
  graves->pop_front();
}

}  // namespace

Arena::~Arena() {
  while (!slabs_.empty()) drop_slab(&slabs_.begin()->second);
}

Arena::Slab* Arena::make_slab(size_t bytes) {
  if (device_ && !device_->take(bytes)) return nullptr;
  size_t whole = bytes + 2 * guard;
  void* at = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) {
    auto base = reinterpret_cast<uint64_t>(at);
    void* data = reinterpret_cast<void*>(base + guard);
    if (mprotect(data, bytes, PROT_READ | PROT_WRITE) == 0) {
      if (bytes >= slab_bytes) madvise(data, bytes, MADV_HUGEPAGE);  // first touches cost less; no matter if it fails
      use_.reserved += bytes;
      use_.reserved_high = std::max(use_.reserved_high, use_.reserved);
      return &slabs_.emplace(base, Slab{base, base + guard, bytes}).first->second;
    }
    munmap(at, whole);
  }
  if (device_) device_->give(bytes);
  return nullptr;
}

// All its blocks are free, and merged into one unless the arena ends.
void Arena::drop_slab(Slab* slab) {
  auto block = blocks_.lower_bound(slab->data);
  while (block != blocks_.end() && block->second.slab == slab) {
    if (block->second.free) free_.erase({block->second.bytes, block->first});
    block = blocks_.erase(block);
  }
  use_.reserved -= slab->bytes;
  if (device_) device_->give(slab->bytes);
  if (apart_) {
    bury(slab->base, slab->bytes + 2 * guard);
  } else {
    munmap(reinterpret_cast<void*>(slab->base), slab->bytes + 2 * guard);
  }
  slabs_.erase(slab->base);
}

void Arena::set_free(Blocks::iterator block, bool free) {
  block->second.free = free;
  if (free) {
    free_.emplace(block->second.bytes, block->first);
  } else {
    free_.erase({block->second.bytes, block->first});
  }
}

uint64_t Arena::allocate(size_t bytes) {
  if (bytes > size_t{1} << 46) return 0;
  bytes = round_up(std::max<size_t>(bytes, 1), apart_ ? apart_granule : granule);
  std::lock_guard<std::mutex> hold(lock_);
  auto fit = apart_ ? free_.end() : free_.lower_bound({bytes, 0});
  if (fit == free_.end()) {
    size_t least = round_up(bytes, page);
    size_t wanted = apart_ || bytes >= slab_bytes / 2 ? least : slab_bytes;
    Slab* slab = make_slab(wanted);
    if (!slab && wanted > least) slab = make_slab(least);
    if (!slab) return 0;
    auto block = blocks_.emplace(slab->data, Block{slab->bytes, true, slab}).first;
    fit = free_.emplace(slab->bytes, block->first).first;
  }
  auto block = blocks_.find(fit->second);
  free_.erase(fit);
  Slab* slab = block->second.slab;
  if (size_t left = block->second.bytes - bytes) {
    block->second.bytes = apart_ ? left : bytes;  // apart: the block is at the slab's end
    auto rest = blocks_.emplace(block->first + block->second.bytes, Block{apart_ ? bytes : left, true, slab}).first;
    if (apart_) std::swap(block, rest);
    free_.emplace(rest->second.bytes, rest->first);
  }
  block->second.free = false;
  slab->blocks++;
  use_.used += bytes;
  use_.used_high = std::max(use_.used_high, use_.used);
  return block->first;
}

void Arena::release(uint64_t address) {
  std::lock_guard<std::mutex> hold(lock_);
  auto block = blocks_.find(address);
  Slab* slab = block->second.slab;
  use_.used -= block->second.bytes;
  set_free(block, true);
  auto merge = [&](Blocks::iterator first, Blocks::iterator second) {
    set_free(first, false);
    set_free(second, false);
    first->second.bytes += second->second.bytes;
    blocks_.erase(second);
    set_free(first, true);
    return first;
  };
  auto mergeable = [&](Blocks::iterator one) {
    return one != blocks_.end() && one->second.free && one->second.slab == slab;
  };
  if (mergeable(std::next(block))) block = merge(block, std::next(block));
  if (block != blocks_.begin() && mergeable(std::prev(block))) block = merge(std::prev(block), block);
  if (--slab->blocks == 0 && !keep_) drop_slab(slab);
}

void Arena::trim(size_t keep_bytes) {
  std::lock_guard<std::mutex> hold(lock_);
  for (auto slab = slabs_.begin(); slab != slabs_.end() && use_.reserved > keep_bytes;) {
    Slab* one = &(slab++)->second;
    if (one->blocks == 0) drop_slab(one);
  }
}

Arena::Use Arena::use() {
  std::lock_guard<std::mutex> hold(lock_);
  return use_;
}

void Arena::reset_high(bool reserved, bool used) {
  std::lock_guard<std::mutex> hold(lock_);
  if (reserved) use_.reserved_high = use_.reserved;
  if (used) use_.used_high = use_.used;
}

}  // namespace cudacpu
