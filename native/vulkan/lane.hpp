// The interface that carries out commands with a Vulkan device (core/interface.hpp): what each queue has of it.
#pragma once
#include <memory>
#include <vector>

#include "core/interface.hpp"
#include "vulkan/clock.hpp"
#include "vulkan/recorder.hpp"

namespace hcq::vk {

// What Device::context is.
struct Served {
  explicit Served(std::shared_ptr<Context> context)
      : work(std::make_shared<Work>(std::move(context))), clock(*work->context) {}
  std::shared_ptr<Work> work;
  Clock clock;
};

// A run of bound commands, recorded once. Whoever gives it to the device holds it until that is over.
struct Kept {
  explicit Kept(std::shared_ptr<Recorder> by) : recorder(std::move(by)) {}
  ~Kept();
  Kept(const Kept&) = delete;
  std::shared_ptr<Recorder> recorder;
  Recorded recorded;
};

const Interface& interface();

}  // namespace hcq::vk
