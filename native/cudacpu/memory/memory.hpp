// What addresses mean: every range of memory that the API knows. What does not live here: where ranges come from
// (arena.hpp), pools (pool.hpp), copies (copy.hpp).
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "device/context.hpp"

namespace cudacpu {

class Pool;

enum class Memory {
  device,      // cuMemAlloc
  managed,     // cuMemAllocManaged
  host,        // cuMemHostAlloc
  registered,  // cuMemHostRegister
  global,      // a variable of a module
  pooled,      // cuMemAllocAsync; pools of managed and of host memory have these kinds
  mapped,      // cuMemMap
};

// A range of addresses. Immutable but for what the API lets a user set.
struct Range {
  uint64_t base;
  size_t bytes;
  Memory memory;
  Context* context;                 // null: of no context (what is mapped)
  Device* device;                   // null: the host's
  unsigned flags = 0;               // as given at its making
  unsigned handle_types = 0;        // CUmemAllocationHandleType bits that it can be exported as
  std::shared_ptr<Pool> pool;       // that it is of; null for most
  size_t capacity = 0;              // of its block in the pool
  uint64_t id = 0;                  // never used twice
  std::atomic<int> sync_memops{0};  // only told, never acted on
  std::function<void()> release;    // gives the memory back; run when the range is dropped

  Range(uint64_t base, size_t bytes, Memory memory, Context* context, Device* device)
      : base(base), bytes(bytes), memory(memory), context(context), device(device) {}
  bool on_host() const { return memory == Memory::host || memory == Memory::registered; }
};

using RangePtr = std::shared_ptr<Range>;

// Makes the range known; false where it overlaps one that is.
bool add_range(const RangePtr& range);
// The range that the address lies in; null for none, such as ordinary host memory.
RangePtr find_range(uint64_t address);
// Forgets the range that begins there, and hands it out; null for none. Its memory is kept until release() is called.
RangePtr remove_range(uint64_t base);
// For the checks: a range that was removed is still used by what was queued before; until it left.
void keep_for_queued(const RangePtr& range);
void leave(const RangePtr& range);
// The range that the address lies in, known or kept.
RangePtr find_usable(uint64_t address);
// Those of a context, in order of addresses.
std::vector<RangePtr> ranges_of(const Context& context);

// Whether `bytes` from there are memory: of one known range, or, where `unknown` is fine, ordinary host memory that
// does not run into one.
bool inside(uint64_t address, size_t bytes, bool unknown);

// Whether a location is the host's, in any of the ways to say so.
inline bool on_host(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// HCQ_CUDACPU_CHECK=1: look for more mistakes, at some cost.
bool checking();

}  // namespace cudacpu
