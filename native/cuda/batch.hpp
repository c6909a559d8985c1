// Runs of bound commands as CUDA graphs (core/interface.hpp, batch): made at the first submit, changed where commands
// are.
#pragma once
#include <string>

#include "cuda/context.hpp"

namespace hcq {
struct BoundCommands;
}

namespace hcq::cuda {

// Gives the commands from `offset` up to `end`, in units, to a stream of the context: as one launch of a graph. False:
// nothing was given; without an error CUDA has no such graph, and it isn't asked again.
bool launch_batch(const std::shared_ptr<Context>& context, Handle stream, BoundCommands* commands, uint32_t offset,
                  uint32_t end, std::string* error);

}  // namespace hcq::cuda
