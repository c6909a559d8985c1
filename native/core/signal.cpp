// Signals: the pool of 64-byte slots, setting, failing and waking. Records are recycled, never freed (see queue.cpp).
#include "core/signal.hpp"

#include <cstdlib>
#include <new>
#include <vector>

#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "platform/platform.hpp"

namespace hcq {

namespace {
constexpr size_t kSlab = kSignalSlab / sizeof(SignalMemory);  // signals made at a time
std::atomic<uint64_t> g_next_id{1};

struct Pool {
  SpinLock lock;
  std::vector<Signal*> records;
  std::vector<SignalMemory*> slots;
};
Pool* g_pool = new Pool;

// The end of a retirement, which holds the last reference: unless the pool's thread took one meanwhile, to sleep at the
// signal for a queue that waits for it. Then that one's release comes later.
void give_back(void* p) {
  auto* s = static_cast<Signal*>(p);
  // acq_rel: whoever recycles the slot sees every earlier use
  if (s->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (s->owner) retire_object_later(static_cast<PyObject*>(s->owner));
  g_pool->lock.lock();
  if (s->pooled) g_pool->slots.push_back(s->memory);
  g_pool->records.push_back(s);
  g_pool->lock.unlock();
}
}  // namespace

void signals_after_fork() { g_pool = new Pool; }

Signal* signal_create(uint64_t value, SignalMemory* memory, void* owner) {
  Signal* s = nullptr;
  SignalMemory* slot = memory;
  g_pool->lock.lock();
  if (!g_pool->records.empty()) {
    s = g_pool->records.back();
    g_pool->records.pop_back();
  }
  if (!slot) {
    if (g_pool->slots.empty()) {
      auto* slab = static_cast<SignalMemory*>(map_shared(kSignalSlab));
      if (!slab) {
        g_pool->lock.unlock();
        throw std::bad_alloc();
      }
      for (size_t i = 0; i < kSlab; ++i) g_pool->slots.push_back(slab + kSlab - 1 - i);
    }
    slot = g_pool->slots.back();
    g_pool->slots.pop_back();
  }
  g_pool->lock.unlock();
  if (!s) s = static_cast<Signal*>(std::malloc(sizeof(Signal)));
  if (!s) throw std::bad_alloc();
  new (s) Signal();
  s->id = g_next_id.fetch_add(1, std::memory_order_relaxed);
  s->memory = slot;
  s->pooled = memory == nullptr;
  s->owner = owner;
  if (s->pooled) new (slot) SignalMemory();
  // Another process may have set a placed signal already: only a new one of ours, or a given start value, is written.
  if (s->pooled || value != 0) slot->value.store(value, std::memory_order_release);
  return s;
}

void signal_release(Signal* s) {
  if (s->generation != g_generation) return;
  // The last reference goes to the retirement: so the count is never 0 while queued work names the signal, and a
  // further reference can be taken by whoever finds it in the blocked list.
  uint32_t refs = s->refs.load(std::memory_order_acquire);
  while (refs > 1)
    if (s->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_acq_rel)) return;
  retire(give_back, s);
}

void signal_wake(SignalMemory& s) {
  // full fence: either we see the sleeper, or the sleeper sees the value (docs/design/signals.md)
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_relaxed)) {
    s.wake.fetch_add(1, std::memory_order_release);
    futex_wake(&s.wake, INT32_MAX, true);
  }
  if (blocked_entries()) resume_satisfied();
}

void signal_set(SignalMemory& s, uint64_t value) {
  s.value.store(value, std::memory_order_release);  // what was written before is seen by whoever sees the value
  signal_wake(s);
}

void signal_fail(SignalMemory& s, uint64_t error, uint64_t first, uint64_t last) {
  static SpinLock writers;  // two queues of this process may fail one signal at once
  writers.lock();
  uint64_t old = s.error.load(std::memory_order_acquire);
  if (old == 0) {
    s.error_first.store(first, std::memory_order_relaxed);
    s.error_last.store(last, std::memory_order_relaxed);
    s.error.store(error, std::memory_order_release);  // after the range that it covers
  } else {
    // One range: extended when it touches, or when its values were not passed since (whoever waits for those must still
    // be told); else moved to the newer failure. The first cause of a lost device stays.
    if (s.error_last.load(std::memory_order_relaxed) != UINT64_MAX) {
      uint64_t had = s.error_last.load(std::memory_order_relaxed);
      if (first > had + 1 && s.value.load(std::memory_order_acquire) >= had) {
        s.error_first.store(first, std::memory_order_relaxed);
        s.error.store(error, std::memory_order_release);
      } else if (first < s.error_first.load(std::memory_order_relaxed)) {
        s.error_first.store(first, std::memory_order_relaxed);
      }
      if (last > had) s.error_last.store(last, std::memory_order_release);
    }
  }
  writers.unlock();
  signal_wake(s);
}

}  // namespace hcq
