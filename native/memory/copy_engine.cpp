// Large copies, shared among a few helper threads that sleep otherwise. How one thread copies its part is
// core/stream.cpp.
#include "memory/copy_engine.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/scheduler.hpp"
#include "core/stream.hpp"
#include "platform/platform.hpp"

namespace hcq {

namespace {

constexpr uint64_t kPiece = 1ull << 20;
constexpr unsigned kThreads = 8;  // more do not raise the bandwidth of one socket much

// Helpers sleep until there is a job. One job at a time: a second caller does its own alone.
class Engine {
 public:
  const uint32_t generation = g_generation;

  bool run(uint64_t count, void (*fn)(void*, uint64_t), void* context) {
    std::unique_lock<std::mutex> one(caller_, std::try_to_lock);
    if (!one.owns_lock()) return false;
    start_helpers();
    if (helpers_ == 0) return false;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      fn_ = fn;
      context_ = context;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);  // the mutex publishes it
      ++job_;
    }
    wake_.notify_all();
    work(fn, context, count);
    // A helper that has not begun by now finds nothing left; those that have are waited for.
    std::unique_lock<std::mutex> hold(mutex_);
    count_ = 0;
    done_.wait(hold, [this] { return active_ == 0; });
    return true;
  }

 private:
  void work(void (*fn)(void*, uint64_t), void* context, uint64_t count) {
    // relaxed: pieces are independent, and the mutex orders their results
    for (uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) fn(context, i);
  }

  void start_helpers() {
    if (started_) return;
    started_ = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for Python's threads
    for (unsigned i = 1; i < std::min(worker_limit(), kThreads); ++i) {
      try {
        std::thread([this] { help(); }).detach();
        ++helpers_;
      } catch (const std::system_error&) {
        break;  // no more threads: fewer helpers
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void help() {
    set_thread_name("hcq-copy");
    uint64_t seen = 0;
    std::unique_lock<std::mutex> hold(mutex_);
    for (;;) {
      wake_.wait(hold, [&] { return job_ != seen; });
      seen = job_;
      if (count_ == 0) continue;
      ++active_;
      auto fn = fn_;
      void* context = context_;
      uint64_t count = count_;
      hold.unlock();
      work(fn, context, count);
      hold.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex caller_;             // held by the thread whose job runs
  std::mutex mutex_;              // guards what follows
  std::condition_variable wake_;  // a new job
  std::condition_variable done_;  // the last active helper finished
  uint64_t job_ = 0;
  uint64_t count_ = 0;
  void (*fn_)(void*, uint64_t) = nullptr;
  void* context_ = nullptr;
  unsigned active_ = 0;
  std::atomic<uint64_t> next_{0};
  bool started_ = false;  // guarded by caller_
  unsigned helpers_ = 0;
};

// Never destroyed, since helpers outlive the interpreter; replaced in a forked child, where the old one's threads are
// gone and its mutexes may be held for ever.
std::atomic<Engine*> g_engine{nullptr};

Engine& engine() {
  // acquire: pairs with the exchange of the thread that made it
  Engine* e = g_engine.load(std::memory_order_acquire);
  while (!e || e->generation != g_generation) {
    Engine* fresh = new Engine();
    if (g_engine.compare_exchange_strong(e, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
  }
  return *e;
}

struct Copy {
  char* dest;
  const char* src;
  uint64_t size;
};

void copy_piece(void* context, uint64_t i) {
  const Copy& c = *static_cast<Copy*>(context);
  uint64_t at = i * kPiece;
  copy_part(c.dest + at, c.src + at, std::min(kPiece, c.size - at), c.size);
}

}  // namespace

void in_parallel(uint64_t count, void (*fn)(void*, uint64_t), void* context) {
  if (count > 1 && engine().run(count, fn, context)) return;
  for (uint64_t i = 0; i < count; ++i) fn(context, i);
}

void copy_bytes(void* dest, const void* src, uint64_t size) {
  uint64_t d = reinterpret_cast<uint64_t>(dest), s = reinterpret_cast<uint64_t>(src);
  bool apart = d - s >= size && s - d >= size;  // unsigned: the distance either way around
  if (size < large_copy() || !apart) {
    std::memmove(dest, src, size);
    return;
  }
  Copy copy{static_cast<char*>(dest), static_cast<const char*>(src), size};
  in_parallel((size + kPiece - 1) / kPiece, copy_piece, &copy);
}

}  // namespace hcq
