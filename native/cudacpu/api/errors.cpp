// The names and texts of results. What does not live here: who returns them.
#include <cctype>
#include <cstring>
#include <map>
#include <string>

#include "api/api.hpp"

namespace cudacpu {
namespace {

struct Text {
  const char* name;
  std::string words;
};

// What programs show, or look for in what they show. The others are told by their names.
constexpr struct {
  CUresult result;
  const char* words;
} known[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
    {CUDA_ERROR_ASSERT, "device-side assert triggered"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

const std::map<int, Text>& texts() {
  static const auto* all = [] {  // never destroyed: errors are asked for until the process is gone
    auto* made = new std::map<int, Text>();
#define X(name) made->emplace(name, Text{#name, ""});
#include "api/errors.inc"
#undef X
    for (auto& [result, text] : *made) {
      if (result) text.words = text.name + std::strlen("CUDA_ERROR_");
      for (char& c : text.words) c = c == '_' ? ' ' : static_cast<char>(std::tolower(c));
    }
    for (const auto& one : known) made->at(one.result).words = one.words;
    return made;
  }();
  return *all;
}

CUresult give(CUresult error, const char** out, const char* (*field)(const Text&)) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  auto found = texts().find(error);
  *out = found == texts().end() ? nullptr : field(found->second);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

HCQ_API cuGetErrorName(CUresult error, const char** out) {
  return give(error, out, [](const Text& text) { return text.name; });
}

HCQ_API cuGetErrorString(CUresult error, const char** out) {
  return give(error, out, [](const Text& text) { return text.words.c_str(); });
}

}  // namespace cudacpu
