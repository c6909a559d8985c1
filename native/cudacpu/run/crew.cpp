// The helpers and their queue.
#include "run/crew.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "stream/threads.hpp"

namespace cudacpu {

namespace {

uint32_t count_cores() {
  if (const char* text = std::getenv("HCQ_CPU_THREADS")) {
    int wanted = std::atoi(text);
    if (wanted > 0) return static_cast<uint32_t>(wanted);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

class Crew {
 public:
  void call(Shared& work) {
    std::lock_guard<std::mutex> hold(lock_);
    work_.push_back(&work);
    uint32_t wanted = std::min(work.most_helpers, cores() - 1);
    while (threads_ < wanted) {
      if (!start_thread("cuda-block", [this] { run(); })) break;  // the caller does what is left
      ++threads_;
    }
    come_.notify_all();
  }

  void dismiss(Shared& work) {
    std::unique_lock<std::mutex> hold(lock_);
    work_.erase(std::remove(work_.begin(), work_.end(), &work), work_.end());
    gone_.wait(hold, [&] { return work.helping_ == 0; });
  }

 private:
  void run() {
    std::unique_lock<std::mutex> hold(lock_);
    for (;;) {
      auto found = std::find_if(work_.begin(), work_.end(), [](const Shared* work) {
        return work->came_ < work->most_helpers && work->has_more();
      });
      if (found == work_.end()) {
        come_.wait(hold);
        continue;
      }
      Shared& work = **found;
      ++work.came_;
      ++work.helping_;
      hold.unlock();
      work.help();
      hold.lock();
      if (--work.helping_ == 0) gone_.notify_all();
    }
  }

  std::mutex lock_;
  std::condition_variable come_, gone_;
  std::vector<Shared*> work_;
  uint32_t threads_ = 0;
};

namespace {

// Never destroyed: helpers stand in it when the process ends.
Crew* g_crew = nullptr;
std::once_flag g_once;

Crew& crew() {
  std::call_once(g_once, [] {
    g_crew = new Crew;
    // A child has none of the threads, and perhaps a lock that one of them held.
    pthread_atfork(nullptr, nullptr, [] { g_crew = new Crew; });
  });
  return *g_crew;
}

}  // namespace

uint32_t cores() {
  static const uint32_t count = count_cores();
  return count;
}

void call_crew(Shared& work) { crew().call(work); }
void dismiss_crew(Shared& work) { crew().dismiss(work); }

}  // namespace cudacpu
