// Time of a device's time-stamps, brought to the host's clock.
#pragma once
#include <mutex>

#include "vulkan/context.hpp"

namespace hcq::vk {

// By VK_EXT_calibrated_timestamps where the device has it. Else by what is known of each command: it did not run before
// it was given, nor after it was seen to be over. Any thread.
class Clock {
 public:
  explicit Clock(Context& context) : context_(context) {}
  // When a command ran, in ns of CLOCK_MONOTONIC, by the ticks at its ends; it is over, and was given at `given`.
  void times(uint64_t begin, uint64_t end, uint64_t given, uint64_t* started, uint64_t* ended);

 private:
  bool calibrate();
  int64_t since(uint64_t tick) const;  // ns from the anchor on

  Context& context_;
  std::mutex lock_;                      // a leaf
  uint64_t anchor_ = 0, anchor_at_ = 0;  // a tick, and when it was; 0: there is none yet
  uint64_t calibrated_ = 0;              // when
};

}  // namespace hcq::vk
