// Which thread an access was of, in code that runs many at once: by the addresses that follow from a thread's numbers
// and the arguments (src/hcq/cudacpu/lower/accesses.py). What does not live here: where the access was in the code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "run/abi.hpp"

namespace cudacpu {

// What is known of an access that failed.
struct Failed {
  uint32_t line;     // of the PTX: the access's, or of what the processor computes in the same instruction
  bool has_address;  // else the processor found it misaligned, or to be no address at all
  uint64_t address;
  bool misaligned;
};

struct Whose {
  uint32_t count = 0;  // threads whose access it may have been; 0: not known
  uint32_t first = 0;  // the first one's number in the block
  uint32_t line = 0;   // of the access
};

// `accesses` are those of the kernel, as accesses.py writes them. Looks at each thread of the block; reads no memory of
// the program's.
Whose whose(const std::vector<uint8_t>& accesses, const Block& block, const Failed& failed);

}  // namespace cudacpu
