#include "module/jit.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace cudacpu {

namespace {

void copy(char* buffer, void** size, const std::string& text) {
  if (!size) return;
  size_t room = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*size)), written = 0;
  if (buffer && room) {
    written = std::min(room - 1, text.size());
    std::memcpy(buffer, text.data(), written);
    buffer[written] = 0;
    if (written) ++written;  // the zero counts
  }
  *size = reinterpret_cast<void*>(written);
}

}  // namespace

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count && (!options || !values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_size_ = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        errors_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_size_ = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      default:
        // The others say how to make code for a GPU.
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::write(const std::string& info, const std::string& errors, double milliseconds) const {
  copy(info_, info_size_, info);
  copy(errors_, error_size_, errors);
  if (!wall_time_) return;
  auto time = static_cast<float>(milliseconds);
  std::memcpy(wall_time_, &time, sizeof time);
}

}  // namespace cudacpu
