// The operations that threads of a warp do together: shuffles, votes, matches, reductions, exchanges. What does not
// live here: barriers of a block, and resuming threads (block.hpp).
#pragma once
#include <cstdint>
#include <vector>

#include "run/abi.hpp"

namespace cudacpu {

class Check;

constexpr uint32_t kLanes = 32;  // threads of a warp

// Lanes by what they do, a bit each. Every lane is in one of them or has returned.
struct Warp {
  Thread* threads;                 // of lane 0
  uint32_t lanes;                  // those that exist
  uint32_t ready;                  // may run
  uint32_t barrier;                // stand at a barrier of the block
  uint32_t waiting;                // stand at an operation of the warp
  uint32_t asking;                 // want to know who else stands here
  uint32_t yielded;                // wait for what others write
  std::vector<uint8_t> exchanged;  // what all gave; operations that exchange are those of whole warps

  uint32_t live() const { return ready | barrier | waiting | asking | yielded; }
};

// Completes the operations for which all lanes have come; these are ready then. True if there was one.
// Barriers of the warp are told to `check`, if there is one.
bool complete_operations(Warp& warp, Check* check);

// Tells those who ask. To be called when no lane can run: then who stands together has come together.
bool complete_asking(Warp& warp);

}  // namespace cudacpu
