// The thread of a lane that sleeps until an event is over, and says so to the queue.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/interface.hpp"
#include "cuda/api.hpp"
#include "platform/platform.hpp"

namespace hcq::cuda {

// Has commands_over called when an event is over. A thread a lane, made at the first wait that sleeps; it may block in
// the driver, and is told there of a failure too, where a function given to the stream would not be called. While it is
// awake it looks for more between naps, so that launches in a row make no system call for it.
class Teller {
 public:
  ~Teller() {
    if (!thread_.joinable()) return;
    state_->stop.store(true, std::memory_order_seq_cst);  // before the look at `asleep`, as below
    wake();
    // The last reference to the queue may have gone in the thread itself, which ends when it is back.
    if (thread_.get_id() == std::this_thread::get_id())
      thread_.detach();
    else
      thread_.join();
  }

  // One event and one `suspect` for all calls; that is set where the wait ends with an error. False: there is no
  // thread.
  bool tell(Queue* q, Handle context, Handle event, std::atomic<bool>* suspect) {
    if (!thread_.joinable() &&
        !start_thread(&thread_, [state = state_, context, event, suspect] { run(state, context, event, suspect); }))
      return false;
    // seq_cst: the queue before the look at `asleep`; the thread stores that before it looks for a queue
    state_->queue.store(q, std::memory_order_seq_cst);
    wake();
    return true;
  }

 private:
  struct State {
    std::atomic<Queue*> queue{nullptr};  // who is told next
    std::atomic<bool> stop{false}, asleep{false};
    std::mutex lock;  // a leaf
    std::condition_variable changed;
    bool called() const { return queue.load(std::memory_order_seq_cst) || stop.load(std::memory_order_seq_cst); }
  };
  static void run(std::shared_ptr<State> state, Handle context, Handle event, std::atomic<bool>* suspect);
  static void sleep(State& state);

  void wake() {
    if (!state_->asleep.load(std::memory_order_seq_cst)) return;
    std::lock_guard<std::mutex> guard(state_->lock);
    state_->changed.notify_one();
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();  // the thread may outlive the lane by a moment
  std::thread thread_;
};

}  // namespace hcq::cuda
