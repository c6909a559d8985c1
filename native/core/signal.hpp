// Signals: 64 bytes of position-independent memory that queues, host threads and other processes order work by, and the
// process-local record of one (who sets it, who keeps its memory). Waiting lives here; queues live in queue.hpp.
#pragma once
#include <string>

#include "core/base.hpp"

namespace hcq {

struct Queue;

// The shared layout (docs/design/signals.md). All zero is a valid signal of value 0.
struct alignas(64) SignalMemory {
  std::atomic<uint64_t> value;        // compared unsigned: satisfied when value >= wanted
  std::atomic<uint64_t> timestamp;    // ns on CLOCK_MONOTONIC, written by timestamp commands
  std::atomic<uint64_t> error;        // 0, or (pid << 32 | fault id): values error_first..error_last will not come
  std::atomic<uint64_t> error_first;  // first value that failed
  std::atomic<uint64_t> error_last;   // last one; UINT64_MAX when the device is lost
  std::atomic<uint32_t> wake;         // futex word, raised at every set that finds sleepers
  std::atomic<uint32_t> sleepers;     // threads (of any process) that sleep on `wake`
  uint64_t reserved[2];
};
static_assert(sizeof(SignalMemory) == 64, "a signal is 64 bytes");

// The pool's signals lie in slabs of this many bytes, aligned so: memory that can be mapped again for a device
// (map_again), and stays for good.
constexpr uint64_t kSignalSlab = 16384;

// One a signal and process, reference counted; packets hold it as a raw pointer, kept valid by retirement (retire.hpp).
struct Signal {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t id = 0;  // for messages
  SignalMemory* memory = nullptr;
  std::atomic<Queue*> setter{nullptr};  // the queue that last took a command to set it: whom a waiter may step
  // How often the host set it. Relaxed: whoever saw such a value, or comes after who did, sees the count too.
  std::atomic<uint32_t> host_sets{0};
  bool pooled = true;     // memory is a slot of our pool, not the caller's
  void* owner = nullptr;  // PyObject* that keeps the caller's memory
};

enum class Reached : uint8_t { yes, no, failed };
// Whether `wanted` is reached, failed, or still to come.
inline Reached signal_reached(const SignalMemory& s, uint64_t wanted) {
  // acquire: what was written before the value was set is seen by whoever saw the value
  uint64_t v = s.value.load(std::memory_order_acquire);
  uint64_t e = s.error.load(std::memory_order_acquire);
  if (__builtin_expect(e != 0, 0) && wanted >= s.error_first.load(std::memory_order_relaxed) &&
      wanted <= s.error_last.load(std::memory_order_relaxed))
    return Reached::failed;
  return v >= wanted ? Reached::yes : Reached::no;
}

Signal* signal_create(uint64_t value, SignalMemory* memory = nullptr, void* owner = nullptr);
// Drops a reference; the signal returns to the pool once queued work has passed (retire.hpp). Until then its count is
// not 0: queued work that names it is enough to take a reference.
void signal_release(Signal*);

void signal_set(SignalMemory&, uint64_t value);                                  // store, wake, resume
void signal_fail(SignalMemory&, uint64_t error, uint64_t first, uint64_t last);  // mark failed, wake, resume
void signal_wake(SignalMemory&);                                                 // sleepers and blocked queues

void signals_after_fork();
}  // namespace hcq
