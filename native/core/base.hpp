// What every native file needs: process generation, time, a spin lock. Nothing here knows of queues or Python.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hcq {

// Raised once in a child after fork. A native object stores the generation it was made in; an object of an older one is
// inherited: it is never locked, freed, unmapped or waited for, and any touch from Python raises ForkedDeviceError.
// Plain, not atomic: it is only written in the child while that has a single thread.
extern uint32_t g_generation;
extern int g_parent_pid;  // the process that forked last; 0 in a process that was not forked by us
void install_fork_handler();
// Calls fn in every forked child, before anything else of ours runs there; it gives a subsystem fresh state.
void at_fork_in_child(void (*fn)());

// CLOCK_MONOTONIC in ns: the clock of time.perf_counter_ns on Linux.
inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void yield_thread();  // sched_yield, out of line

// A variable of one writer, which others may look at though it changes meanwhile: they see to it themselves that what
// they saw belongs together.
template <class T>
class Relaxed {
 public:
  explicit Relaxed(T value = T()) : value_(value) {}
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  Relaxed& operator=(const Relaxed& other) { return *this = static_cast<T>(other); }
  operator T() const { return value_.load(std::memory_order_relaxed); }
  T operator->() const { return *this; }
  void operator+=(T more) { *this = *this + more; }

 private:
  std::atomic<T> value_;
};

// Held for tens of nanoseconds, never while running user code, taking the GIL or sleeping.
class SpinLock {
 public:
  bool try_lock() { return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire); }
  void lock() {
    // After a while the holder was probably preempted: give it the core.
    for (unsigned n = 0; !try_lock(); ++n) n < 200 ? cpu_relax() : yield_thread();
  }
  void unlock() { held_.store(false, std::memory_order_release); }
  bool held() const { return held_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace hcq
