// Races are found by what is known to have come before (vector clocks), so that they are found in whatever order the
// threads happened to run. Barriers of a block, bar.warp.sync and atomics order; shuffles and votes do not, as PTX
// says.
#include "run/check.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>

#include "memory/memory.hpp"
#include "run/fault.hpp"

namespace cudacpu {

namespace {

constexpr size_t kGranules = size_t{1} << 20;  // of global memory, that a block's races are looked for in; some 300 MB
constexpr size_t kWords = 4096;                // that atomics go to; those beyond share one
constexpr uint64_t kParams = 4096;             // how far from their start generic addresses of parameters may lie

struct Heap {
  std::mutex lock;
  std::map<uint64_t, uint64_t> ranges;  // begin, bytes
};

Heap& heap() {
  static auto* one = new Heap();  // never destroyed: kernels may run until the process is gone
  return *one;
}

struct Bounds {
  uint64_t base, bytes;
  bool freed;
};

// The range that holds the address, or the nearest one below. Plain values: callers leave by longjmp.
Bounds heap_bounds(uint64_t address) {
  std::lock_guard<std::mutex> hold(heap().lock);
  auto after = heap().ranges.upper_bound(address);
  if (after == heap().ranges.begin()) return {};
  --after;
  return address - after->first < after->second ? Bounds{after->first, after->second, false} : Bounds{};
}

Bounds bounds_of(uint64_t address) {
  RangePtr range = find_usable(address);
  return range ? Bounds{range->base, range->bytes, false} : heap_bounds(address);
}

// Memory that ends shortly before the address, or begins shortly after it.
Bounds neighbour(uint64_t address) {
  for (uint64_t away = 1; away <= 1 << 16; away *= 2) {
    for (uint64_t at : {address - away, address + away}) {
      Bounds found = bounds_of(at);
      if (found.bytes) return found;
    }
  }
  return {};
}

// Local variables of functions that are really called lie on the host thread's stack.
bool on_stack(uint64_t address) {
  static thread_local uint64_t low = 0, high = 0;
  if (!high) {
    pthread_attr_t attributes;
    void* base = nullptr;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &base, &bytes);
      pthread_attr_destroy(&attributes);
    }
    low = reinterpret_cast<uint64_t>(base);
    high = low + bytes;
  }
  return address - low < high - low;
}

const char* verb(Access access) {
  switch (access) {
    case Access::read:
    case Access::read_strong:
      return "a read";
    case Access::write:
    case Access::write_strong:
      return "a write";
    default:
      return "an atomic";
  }
}

struct Text {
  char text[32];
};

Text triple(const Block* block, uint32_t thread) {
  const uint32_t* n = block->grid->ntid;
  Text said;
  std::snprintf(said.text, sizeof said.text, "(%u, %u, %u)", thread % n[0], thread / n[0] % n[1], thread / n[0] / n[1]);
  return said;
}

}  // namespace

void Check::allocated(void* at, uint64_t bytes) {
  if (!at) return;
  auto begin = reinterpret_cast<uint64_t>(at);
  // The memory is aligned to 16, and no granule is shared with what comes after: malloc keeps its own words there.
  for (uint64_t granule = begin / 8; granule <= (begin + bytes) / 8 && !global_.empty(); ++granule) {
    global_.erase(granule);
  }
  std::lock_guard<std::mutex> hold(heap().lock);
  heap().ranges[begin] = bytes;
}

void Check::freed(void* at) {
  std::lock_guard<std::mutex> hold(heap().lock);
  heap().ranges.erase(reinterpret_cast<uint64_t>(at));
}

Check::Check(const Block* block, uint32_t threads)
    : block_(block), threads_(threads), own_(threads, 1), floor_(threads, 0), known_(threads) {
  shared_.resize(block->grid->shared_bytes);
}

void Check::begin() {
  ++round_;
  for (uint32_t i = 0; i < threads_; ++i) {
    floor_[i] = own_[i]++;
    known_[i].clear();
  }
  for (Clocks& each : arrived_) each.clear();
  words_.clear();
  global_.clear();
  range_bytes_ = 0;  // a host function may have freed it
}

// -- accesses ---------------------------------------------------------------------------------------------------------

void Check::access(uint32_t thread, uint64_t address, uint32_t bytes, Access access, Space space, uint32_t line) {
  const Grid& grid = *block_->grid;
  auto base = reinterpret_cast<uint64_t>(block_->shared);
  auto local = reinterpret_cast<uint64_t>(block_->local) + uint64_t{thread} * grid.local_bytes;
  bool in_shared = address - base < grid.shared_bytes, in_local = address - local < grid.local_bytes;
  uint64_t offset = space == Space::shared ? address - base : space == Space::local ? address - local : address;
  if (!bytes) return;  // a copy of nothing
  uint32_t aligned = bytes > 32 ? 16 : bytes & -bytes;
  if (offset & (aligned - 1)) {
    found(thread, CUDA_ERROR_MISALIGNED_ADDRESS, line, address, "%s of %u bytes at 0x%llx, which is no multiple of %u",
          verb(access), bytes, static_cast<unsigned long long>(offset), aligned);
  }
  if (space == Space::shared || (space == Space::generic && in_shared)) {
    if (!in_shared || grid.shared_bytes - (address - base) < bytes) {
      found(thread, CUDA_ERROR_ILLEGAL_ADDRESS, line, address,
            "%s of %u bytes at %lld of shared memory, of which the block has %u", verb(access), bytes,
            static_cast<long long>(address - base), grid.shared_bytes);
    }
    return shared(thread, address, bytes, access, line);
  }
  if (space == Space::local || (space == Space::generic && in_local)) {
    if ((!in_local || grid.local_bytes - (address - local) < bytes) && !on_stack(address)) {
      found(thread, CUDA_ERROR_ILLEGAL_ADDRESS, line, address,
            "%s of %u bytes at %lld of local memory, of which the thread has %u", verb(access), bytes,
            static_cast<long long>(address - local), grid.local_bytes);
    }
    return;
  }
  global(thread, address, bytes, access, line);
}

void Check::shared(uint32_t thread, uint64_t address, uint32_t bytes, Access access, uint32_t line) {
  uint64_t offset = address - reinterpret_cast<uint64_t>(block_->shared);
  bool write = access == Access::write || access == Access::write_strong;
  for (uint32_t i = 0; i < bytes; ++i) {
    Cell& cell = shared_[offset + i];
    if (!write && cell.round != round_) {
      found(thread, CUDA_ERROR_LAUNCH_FAILED, line, address,
            "%s of %u bytes at %llu of shared memory, where byte %llu was never written", verb(access), bytes,
            static_cast<unsigned long long>(offset), static_cast<unsigned long long>(offset + i));
    }
    if (write) cell.round = round_;
    touch(cell, thread, address + i, access, "shared", line);
  }
  order(thread, address, access);
}

void Check::global(uint32_t thread, uint64_t address, uint32_t bytes, Access access, uint32_t line) {
  if (address - range_ >= range_bytes_ || range_bytes_ - (address - range_) < bytes) {
    Bounds bounds = bounds_of(address);
    auto params = reinterpret_cast<uint64_t>(block_->grid->params);
    bool exempt = address - params < kParams || (block_->grid->workspace && address - block_->grid->workspace < 8) ||
                  on_stack(address);
    if (!exempt && (!bounds.bytes || bounds.bytes - (address - bounds.base) < bytes)) {
      Bounds near = bounds.bytes ? bounds : neighbour(address);
      auto at = static_cast<unsigned long long>(address);
      if (!near.bytes) {
        found(thread, CUDA_ERROR_ILLEGAL_ADDRESS, line, address, "%s of %u bytes at 0x%llx, where no memory is",
              verb(access), bytes, at);
      }
      bool after = address >= near.base;
      uint64_t away = after ? address - near.base : near.base - address;
      found(thread, CUDA_ERROR_ILLEGAL_ADDRESS, line, address,
            "%s of %u bytes at 0x%llx, %llu bytes %s the start of %llu bytes at 0x%llx", verb(access), bytes, at,
            static_cast<unsigned long long>(away), after ? "after" : "before",
            static_cast<unsigned long long>(near.bytes), static_cast<unsigned long long>(near.base));
    }
    range_ = bounds.base;
    range_bytes_ = bounds.bytes;
  }
  for (uint32_t i = 0; i < bytes; ++i) {
    auto found_at = global_.find((address + i) / 8);
    if (found_at == global_.end()) {
      if (global_.size() >= kGranules) break;
      found_at = global_.emplace((address + i) / 8, Granule{}).first;
    }
    touch(found_at->second.cells[(address + i) % 8], thread, address + i, access, "global", line);
  }
  order(thread, address, access);
}

// Two plain accesses, or a plain one and an atomic; but for plain reads of global memory beside atomics, by which
// programs look whether it is worth asking.
void Check::touch(Cell& cell, uint32_t thread, uint64_t address, Access access, const char* memory, uint32_t line) {
  if (access == Access::read_strong || access == Access::write_strong) return;
  bool write = access == Access::write, atomic = access == Access::atomic, is_shared = memory[0] == 's';
  auto race = [&](uint32_t other, const char* did) {
    uint64_t at = is_shared ? address - reinterpret_cast<uint64_t>(block_->shared) : address;
    found(thread, CUDA_ERROR_LAUNCH_FAILED, line, address,
          "a race: it %s byte 0x%llx of %s memory, which thread %s %s, with nothing between that orders them",
          write    ? "writes"
          : atomic ? "changes by an atomic"
                   : "reads",
          static_cast<unsigned long long>(at), memory, triple(block_, other).text, did);
  };
  auto beside = [&](uint32_t other, uint32_t step) { return step && other != thread && !before(other, step, thread); };
  if (beside(cell.writer, cell.written)) race(cell.writer, "wrote");
  if (!atomic && (write || is_shared) && beside(cell.changer, cell.changed)) race(cell.changer, "changed by an atomic");
  for (int i = 0; i < 2 && (write || (atomic && is_shared)); ++i) {
    if (beside(cell.reader[i], cell.read[i])) race(cell.reader[i], "read");
  }
  auto who = static_cast<uint16_t>(thread);
  if (write) {
    cell.written = own_[thread];
    cell.writer = who;
  } else if (atomic) {
    cell.changed = own_[thread];
    cell.changer = who;
  } else {
    // A read that is known to have come before this one needs no trace beside it. Of others, one of another warp stays:
    // what orders the rest of a warp with a writer doesn't order that one.
    auto warp = [&](int i) { return cell.reader[i] / 32u; };
    bool same = warp(0) == thread / 32 && warp(1) != thread / 32;
    int slot = !beside(cell.reader[0], cell.read[0]) ? 0 : !beside(cell.reader[1], cell.read[1]) ? 1 : same ? 0 : 1;
    cell.read[slot] = own_[thread];
    cell.reader[slot] = who;
  }
}

// -- order ------------------------------------------------------------------------------------------------------------

bool Check::before(uint32_t other, uint32_t step, uint32_t thread) const {
  if (step <= floor_[other]) return true;
  const Clocks& known = known_[thread];
  return !known.empty() && step <= known[other];
}

void Check::join(Clocks& into, uint32_t thread) const {
  if (into.empty()) into = floor_;
  const Clocks& known = known_[thread];
  for (uint32_t i = 0; i < known.size(); ++i) into[i] = std::max(into[i], known[i]);
  into[thread] = own_[thread];
}

void Check::learn(uint32_t thread, const Clocks& from) {
  if (from.empty()) return;
  Clocks& known = known_[thread];
  if (known.empty()) known = floor_;
  for (uint32_t i = 0; i < threads_; ++i) known[i] = std::max(known[i], from[i]);
}

// An atomic hands on what its thread knew, and learns what those before it handed on: more order than PTX gives to
// relaxed ones, so that no race is told that is none.
void Check::order(uint32_t thread, uint64_t address, Access access) {
  if (access < Access::read_strong) return;
  Clocks& word = words_[words_.size() < kWords || words_.count(address) ? address : 0];
  if (access != Access::write_strong) learn(thread, word);
  if (access == Access::read_strong) return;
  join(word, thread);
  ++own_[thread];
}

void Check::barrier(uint32_t number, const Warp* warps, const uint32_t* masks, size_t count, bool all, bool counted) {
  const Thread* first = nullptr;
  for (size_t w = 0; w < count; ++w) {
    if (counted) first = nullptr;  // makers and takers meet from different places, but whole warps
    for (uint32_t left = masks[w]; left; left &= left - 1) {
      const Thread& t = warps[w].threads[__builtin_ctz(left)];
      if (!first) first = &t;
      if (t.line == first->line) continue;
      found(t.linear, CUDA_ERROR_LAUNCH_FAILED, t.line, 0,
            "a divergent barrier: it stands at barrier %u here, and thread %s at PTX line %u", number,
            triple(block_, first->linear).text, first->line);
    }
  }
  if (all && arrived_[number].empty()) {
    for (uint32_t i = 0; i < threads_; ++i) {
      floor_[i] = own_[i]++;
      known_[i].clear();
    }
    return;
  }
  Clocks& joined = arrived_[number];
  auto each = [&](auto&& act) {
    for (size_t w = 0; w < count; ++w) {
      for (uint32_t left = masks[w]; left; left &= left - 1) act(warps[w].threads[__builtin_ctz(left)].linear);
    }
  };
  each([&](uint32_t thread) { join(joined, thread); });
  each([&](uint32_t thread) {
    learn(thread, joined);
    ++own_[thread];
  });
  joined.clear();
}

void Check::arrive(uint32_t number, uint32_t thread) {
  join(arrived_[number], thread);
  ++own_[thread];
}

void Check::warp_barrier(const Warp& warp, uint32_t members) {
  Clocks joined;
  for (uint32_t left = members; left; left &= left - 1) join(joined, warp.threads[__builtin_ctz(left)].linear);
  for (uint32_t left = members; left; left &= left - 1) {
    uint32_t thread = warp.threads[__builtin_ctz(left)].linear;
    learn(thread, joined);
    ++own_[thread];
  }
}

void Check::found(uint32_t thread, uint32_t result, uint32_t line, uint64_t address, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fail_with(block_, thread, result, line, address, text);
}

}  // namespace cudacpu
