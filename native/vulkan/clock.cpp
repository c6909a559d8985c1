// Time-stamps on the host's clock: a tick of which the time is known moves along with them.
#include "vulkan/clock.hpp"

#include <algorithm>

namespace hcq::vk {

namespace {
constexpr uint64_t kCalibrated = 100'000'000;  // ns until the two clocks are looked at together again
}

bool Clock::calibrate() {
  if (!context_.facts.calibrated) return false;
  uint64_t now = now_ns();
  if (calibrated_ && now - calibrated_ < kCalibrated) return true;
  CalibratedTimestampInfo clocks[2] = {make<CalibratedTimestampInfo>(kCalibratedTimestampInfo),
                                       make<CalibratedTimestampInfo>(kCalibratedTimestampInfo)};
  clocks[0].domain = kClockDevice;
  clocks[1].domain = kClockMonotonic;
  uint64_t both[2] = {0, 0}, deviation = 0;
  if (context_.call.GetCalibratedTimestampsEXT(context_.device, 2, clocks, both, &deviation) != kSuccess)
    return calibrated_ != 0;
  anchor_ = both[0];
  anchor_at_ = both[1];
  calibrated_ = now;
  return true;
}

int64_t Clock::since(uint64_t tick) const {
  uint32_t unused = 64 - std::min(context_.facts.timestamp_bits, 64u);  // high bits that count nothing
  auto ticks = static_cast<int64_t>((tick - anchor_) << unused) >> unused;
  return static_cast<int64_t>(static_cast<double>(ticks) *
                              static_cast<double>(context_.facts.properties.limits.timestamp_period));
}

void Clock::times(uint64_t begin, uint64_t end, uint64_t given, uint64_t* started, uint64_t* ended) {
  std::lock_guard<std::mutex> guard(lock_);
  uint64_t now = now_ns();
  bool exact = calibrate();
  if (!anchor_at_) {
    anchor_ = end;
    anchor_at_ = now;
  }
  uint64_t at = anchor_at_ + static_cast<uint64_t>(since(end));
  auto lasted = static_cast<uint64_t>(since(end) - since(begin));
  if (!exact) {
    if (at > now) at = now;
    if (at - lasted < given) at += std::min(given - (at - lasted), now - at);
    anchor_ = end;
    anchor_at_ = at;
  }
  *started = at - lasted;
  *ended = at;
}

}  // namespace hcq::vk
