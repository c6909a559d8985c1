// The scheduler's state, for the files that it is made of: scheduler.cpp (threads, ready and blocked queues), jobs.cpp
// and awaiting.cpp. Nobody else includes this.
#pragma once
#include <deque>
#include <mutex>
#include <vector>

#include "core/scheduler.hpp"

namespace hcq {

struct Sleeper {  // a pool thread
  std::atomic<uint32_t> word{0};
  uint64_t thread = 0;
  SpinLock patience;                 // orders changes of what follows
  std::atomic<bool> patient{false};  // it takes nobody's core when it wakes
};

struct Waiting {  // an entry of the blocked list
  Signal* signal;
  uint64_t value;
  bool own;      // the device's own timeline: its error range doesn't count
  Queue* queue;  // or null: an awaiting task
  int descriptor;
  uint64_t token;
};

struct Task {
  int descriptor;
  uint64_t token;
};

constexpr uint64_t kLinger = 20000;  // ns a thread spins on a queue that ran empty, where more comes soon

struct State {
  std::mutex lock;  // everything below that is not atomic; held briefly
  std::deque<Queue*> ready;
  std::vector<Job*> jobs;
  std::vector<unsigned> wanted;  // pool threads each job still takes
  std::vector<Sleeper*> sleepers;
  std::vector<Waiting> waiting;
  std::vector<Task> finished;
  unsigned threads = 0;
  bool scouting = false;                 // one thread spins or naps and will see new work by itself
  std::atomic<Sleeper*> scout{nullptr};  // the last that did; pool threads don't end
  // Mirrors of sizes above, read without the lock. Relaxed: whoever misses a change sees it at the next look.
  std::atomic<uint32_t> ready_count{0}, job_count{0}, waiting_count{0};
  std::atomic<bool> drowsy{false};        // the scout's naps are long: new work must wake it
  std::atomic<uint32_t> busy{0};          // threads that run something; the others are on their way to the lists
  std::atomic<uint64_t> linger{kLinger};  // what that is now: less where it brings nothing. A hint, so relaxed
  std::atomic<uint64_t> empty_since{0};   // when a thread last ran a queue to its end
  std::atomic<bool> rare{false};          // what it ran came further apart than lingering is long
  std::atomic<uint32_t> lingering{0};     // threads that spin on a queue of theirs and look here too
  std::atomic<uint32_t> scout_word{0};    // futex of a napping scout
};
extern State* g_state;

// Under the lock: one more thread to run things, if that is needed and can be had; null, or one to wake() without the
// lock.
Sleeper* wake_candidate(State* s);
void wake(Sleeper* sleeper);
bool sleep_at_signals(State* s);  // the scout's; false: this kernel can't

}  // namespace hcq
