// What the environment says of the devices. What does not live here: what they are to do without (lacks.hpp), the
// checks of kernels (memory.hpp).
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "api/api.hpp"

namespace cudacpu {

struct Settings {
  std::vector<int> visible;  // which devices there are, in order: physical numbers
  int capability = 86;       // ten times the major one plus the minor one
  size_t memory_bytes = 0;   // of each
  bool peers = true;         // whether they reach each other's memory
};

// CUDA_ERROR_INVALID_VALUE and a line in the log for the first variable that makes no sense.
CUresult read(Settings& settings);
// That line, and the error.
CUresult wrong(const char* name, const char* value, const std::string& expected);

}  // namespace cudacpu
