// Group contexts: what a thread needs to run work-groups one after the other. A context is an area of addresses,
// aligned to its size, that holds the ids which hcq.h reads, the stacks items run on, and scratch memory; so code that
// runs on one of its stacks finds it by masking the stack pointer. Nothing is thread-local.
#pragma once
#include <atomic>
#include <string>

#include "core/program.hpp"
#include "cpu/arguments.hpp"

namespace hcq {

// The area: this struct, the stack for items without barriers, fiber stacks, scratch. Addresses only; memory comes with
// use. hcq.h knows kContextArea and the offsets up to local_id.
constexpr size_t kContextArea = size_t{128} << 20;
constexpr size_t kItemStackBegin = size_t{64} << 10;  // a guard page first
constexpr size_t kItemStackEnd = size_t{4} << 20;
constexpr size_t kFiberStack = size_t{60} << 10;  // a guard page first
constexpr uint32_t kMaxItems = 1024;              // fibers of a group
constexpr size_t kScratchBegin = kItemStackEnd + kMaxItems * kFiberStack;
constexpr size_t kMaxScratch = kContextArea - kScratchBegin;
constexpr uint32_t kMaxContexts = 4096;  // of a process: threads that run grid kernels at one moment

struct Fiber {
  void* stack;  // where its registers are saved while it doesn't run
  Fiber* next;  // of those that haven't returned, in order, in a ring
  uint32_t local_id[3];
  uint32_t reserved;
};

struct Context {
  GroupContext group;
  uint32_t
      local_id[4];  // of the item that runs; the fourth: the group is done (hcq.h), and pads a vector store of fibers
  // The fiber switch, in assembler, knows what follows.
  Fiber* current;
  Fiber* previous;  // the one whose `next` is `current`
  void* outside;    // the stack of who started the fibers
  void* entry;      // what each fiber calls: caller(entry, values)
  const uint64_t* arguments;
  ArgumentPlan::Caller caller;

  uint32_t index;
  uint32_t generation;
  std::atomic<bool> busy;
  uint32_t guarded;      // fiber stacks that have their guard page
  uint32_t laid_out[3];  // the local size that the fibers' ids are of
  ArgumentValues values;
  Fiber fibers[kMaxItems];

  uint8_t* base() { return reinterpret_cast<uint8_t*>(this); }
  uint8_t* item_stack() { return base() + kItemStackEnd; }  // grows down from here
  // Coloured: were all at one offset in their pages, the stacks of a group would share a few lines of the first cache.
  uint8_t* fiber_stack(uint32_t i) { return base() + kItemStackEnd + (i + 1) * kFiberStack - i * 5 % 48 * 64; }
  uint8_t* scratch() { return base() + kScratchBegin; }
};
static_assert(offsetof(Context, local_id) == 48 && offsetof(Context, current) == 64, "hcq.h and assembler know these");
static_assert(sizeof(Context) <= kItemStackBegin, "the stack begins behind it");

// A context for the calling thread alone. Waits where the process has as many as it may (or as memory allows).
Context* context_take();
void context_return(Context*);
// False, with a message, when not even one context can be made. After true, context_take always comes to an end.
bool contexts_possible(std::string* error);
// Gives the stacks of the first `items` fibers guard pages, as long as the process can afford the mappings.
void context_guard(Context*, uint32_t items);
// Whether an address is in a guard page of some context. Async-signal-safe.
bool context_is_guard(uint64_t address);

}  // namespace hcq
