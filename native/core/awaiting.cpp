// Tasks of event loops that await a signal: entries of the blocked list that write to a descriptor (scheduler.hpp).
#include <unistd.h>

#include <cerrno>

#include "core/scheduler_state.hpp"

namespace hcq {

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

}  // namespace hcq
