// The thread that waits for events (teller.hpp).
#include "cuda/teller.hpp"

#include <chrono>

namespace hcq::cuda {

namespace {
constexpr std::chrono::microseconds kNap{50};
constexpr unsigned kNaps = 40;  // with nothing to do, before the thread sleeps
}  // namespace

void Teller::run(std::shared_ptr<State> state, Handle context, Handle event, std::atomic<bool>* suspect) {
  set_thread_name("hcq cuda");
  api().push(context);
  for (unsigned naps = 0; !state->stop.load(std::memory_order_relaxed);) {
    Queue* q = state->queue.exchange(nullptr, std::memory_order_acq_rel);
    if (!q) {
      if (++naps < kNaps)
        std::this_thread::sleep_for(kNap);
      else
        sleep(*state);
      continue;
    }
    naps = 0;
    if (api().event_synchronize(event) != kSuccess) suspect->store(true, std::memory_order_relaxed);
    commands_over(q);  // the lane may be gone then
  }
}

void Teller::sleep(State& state) {
  std::unique_lock<std::mutex> guard(state.lock);
  state.asleep.store(true, std::memory_order_seq_cst);
  state.changed.wait(guard, [&] { return state.called(); });
  state.asleep.store(false, std::memory_order_relaxed);
}

}  // namespace hcq::cuda
