// Those who wait for signals: tasks of event loops, which are entries of the blocked list that write to a descriptor
// (scheduler.hpp), and the thread that sleeps at the signals of all entries.
#include <unistd.h>

#include <cerrno>

#include "core/scheduler_state.hpp"
#include "platform/platform.hpp"

namespace hcq {

namespace {
constexpr uint64_t kBlockedSleep = 500000000;  // ns at most: a plain store to a signal's memory wakes nobody
}

void async_register(Signal* signal, uint64_t value, int descriptor, uint64_t token) {
  State* s = g_state;
  signal->refs.fetch_add(1, std::memory_order_relaxed);
  Sleeper* sleeper = nullptr;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    s->waiting.push_back(Waiting{signal, value, false, nullptr, descriptor, token});
    s->waiting_count.store(static_cast<uint32_t>(s->waiting.size()), std::memory_order_relaxed);
    if (!s->scouting) sleeper = wake_candidate(s);  // somebody looks at signals that other processes set
  }
  wake(sleeper);
  if (s->drowsy.load(std::memory_order_relaxed)) urge();  // as in block()
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // the entry before the look: the setter sees it, or we the value
  if (signal_reached(*signal->memory, value) != Reached::no) resume_satisfied();
}

void async_cancel(int descriptor, uint64_t token) {
  State* s = g_state;
  Signal* dropped = nullptr;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    for (size_t i = 0; i < s->waiting.size(); ++i) {
      Waiting& w = s->waiting[i];
      if (w.queue || w.descriptor != descriptor || w.token != token) continue;
      dropped = w.signal;
      w = s->waiting.back();
      s->waiting.pop_back();
      break;
    }
    s->waiting_count.store(static_cast<uint32_t>(s->waiting.size()), std::memory_order_relaxed);
    for (size_t i = 0; i < s->finished.size(); ++i) {
      if (s->finished[i].descriptor != descriptor || s->finished[i].token != token) continue;
      s->finished[i] = s->finished.back();
      s->finished.pop_back();
      break;
    }
  }
  if (dropped) signal_release(dropped);
}

std::vector<uint64_t> async_take(int descriptor) {
  State* s = g_state;
  std::vector<uint64_t> tokens;
  std::lock_guard<std::mutex> guard(s->lock);
  for (size_t i = 0; i < s->finished.size();) {
    if (s->finished[i].descriptor != descriptor) {
      ++i;
      continue;
    }
    tokens.push_back(s->finished[i].token);
    s->finished[i] = s->finished.back();
    s->finished.pop_back();
  }
  return tokens;
}

// Sleeps until work is pushed or a signal that something waits for is set, by this process or another one. A plain
// store to a signal's memory wakes nobody; it is seen at the end of the sleep. False: this kernel can't.
bool sleep_at_signals(State* s) {
  FutexWord words[kMostFutexWords];
  Signal* signals[kMostFutexWords];
  unsigned count = 1;
  words[0] = {&s->scout_word, s->scout_word.load(std::memory_order_acquire), false};
  {
    std::lock_guard<std::mutex> guard(s->lock);
    if (!s->ready.empty() || !s->jobs.empty()) return true;
    for (Waiting& w : s->waiting) {
      if (count == kMostFutexWords) break;
      Signal* signal = w.signal;
      signal->refs.fetch_add(1, std::memory_order_relaxed);  // its entry may go while we sleep
      // seq_cst: the setter stores the value before it reads `sleepers` (docs/design/signals.md)
      signal->memory->sleepers.fetch_add(1, std::memory_order_seq_cst);
      signals[count] = signal;
      words[count] = {&signal->memory->wake, signal->memory->wake.load(std::memory_order_acquire), true};
      ++count;
    }
  }
  resume_satisfied();
  bool able = true;
  if (!s->ready_count.load(std::memory_order_relaxed)) able = futex_wait_any(words, count, kBlockedSleep);
  for (unsigned i = 1; i < count; ++i) {
    signals[i]->memory->sleepers.fetch_sub(1, std::memory_order_relaxed);
    signal_release(signals[i]);
  }
  return able;
}

}  // namespace hcq
