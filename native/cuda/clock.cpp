// Time of a context's events, brought to the host's clock.
//
// CUDA says how long after one event another happened, in floating-point milliseconds, so that an event of which the
// host's time is known has to be near: the anchor moves along. Nothing happens before it was given, nor after it was
// seen to be over; where the anchor says so, it is put right.
#include "core/base.hpp"
#include "cuda/context.hpp"

namespace hcq::cuda {

namespace {
constexpr float kNear = 4000.0f;  // ms; a float has half a microsecond there
constexpr int kTries = 5;
}  // namespace

void Context::set_clock(Handle idle_stream) {
  Current current(*this);
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    Handle event = nullptr;
    if (api().event_create(&event, 0) != kSuccess) return;
    uint64_t before = now_ns();
    bool done = api().event_record(event, idle_stream) == kSuccess && api().event_synchronize(event) == kSuccess;
    uint64_t after = now_ns();
    if (!done || after - before >= best) {
      api().event_destroy(event);
      continue;
    }
    best = after - before;
    std::lock_guard<std::mutex> guard(clock_lock_);
    if (anchor_) api().event_destroy(anchor_);
    anchor_ = event;
    anchor_at_ = before + best / 2;
  }
}

bool Context::times(Handle begin, Handle* end, uint64_t given, uint64_t* started, uint64_t* ended) {
  Current current(*this);
  std::lock_guard<std::mutex> guard(clock_lock_);
  float span = 0, since = 0;
  if (!anchor_ || api().event_elapsed(&since, anchor_, *end) != kSuccess ||
      (begin && api().event_elapsed(&span, begin, *end) != kSuccess) || span < 0)
    return false;
  uint64_t now = now_ns();
  uint64_t lasted = static_cast<uint64_t>(static_cast<double>(span) * 1e6);
  uint64_t at = anchor_at_ + static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(since) * 1e6));
  if (at > now) {
    anchor_at_ -= at - now;
    at = now;
  }
  if (at - lasted < given) {
    uint64_t late = given - (at - lasted);
    if (late > now - at) late = now - at;
    anchor_at_ += late;
    at += late;
  }
  *started = at - lasted < given ? given : at - lasted;
  *ended = at;
  if (since > kNear) {
    std::swap(anchor_, *end);
    anchor_at_ = at;
  }
  return true;
}

}  // namespace hcq::cuda
