// Options of the just-in-time compiler, as modules, libraries and the linker take them.
#pragma once
#include <string>

#include "api/api.hpp"

namespace cudacpu {

// Reads them at once; writes to what they point to when told. Buffers must stay that long.
class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for what is no option.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  // Copies the logs to the caller's buffers, cut off where these end, and says how much was written.
  void write(const std::string& info, const std::string& errors, double milliseconds) const;

 private:
  void** info_size_ = nullptr;
  void** error_size_ = nullptr;
  void** wall_time_ = nullptr;
  char* info_ = nullptr;
  char* errors_ = nullptr;
};

}  // namespace cudacpu
