// Runs of bound commands, recorded once (core/interface.hpp, batch).
#pragma once
#include <memory>

#include "vulkan/lane.hpp"

namespace hcq {
struct BoundCommands;
}

namespace hcq::vk {

// The commands from `offset` up to `end`, in units, in one buffer: as they were recorded, or where they changed since,
// anew. Throws Failure.
std::shared_ptr<Kept> recorded_batch(const std::shared_ptr<Recorder>& recorder, BoundCommands* commands,
                                     uint32_t offset, uint32_t end);

}  // namespace hcq::vk
