// Fills, and the API's entries for them. What does not live here: copies (copy.cpp).
#include "memory/memset.hpp"

#include <algorithm>
#include <cstring>

#include "api/entry.hpp"
#include "memory/memory.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

template <class T>
void fill(uint64_t at, unsigned value, size_t count) {
  std::fill_n(reinterpret_cast<T*>(at), count, static_cast<T>(value));
}

void fill_row(uint64_t at, const CUDA_MEMSET_NODE_PARAMS& p, size_t count) {
  switch (p.elementSize) {
    case 1:
      return fill<uint8_t>(at, p.value, count);
    case 2:
      return fill<uint16_t>(at, p.value, count);
    default:
      return fill<uint32_t>(at, p.value, count);
  }
}

CUresult fill_async(uint64_t at, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
                    CUstream stream, bool wait) {
  return with_context([&](Context& context) -> CUresult {
    NodePtr node;
    if (CUresult result = make_memset({at, pitch, value, element, width, height}, nullptr, &node)) return result;
    std::shared_ptr<Stream> found;
    if (CUresult result = find_stream(context, stream, &found)) return result;
    if (!width || !height) return CUDA_SUCCESS;
    CUresult result = submit(found, std::move(node));
    return result || !wait ? result : synchronize(found);
  });
}

}  // namespace

CUresult FillNode::run(Context&) const {
  bool whole = params.height == 1 || params.pitch == params.width * params.elementSize;
  for (size_t line = 0; line < (whole ? 1 : params.height); line++) {
    fill_row(params.dst + line * params.pitch, params, whole ? params.width * params.height : params.width);
  }
  return CUDA_SUCCESS;
}

bool FillNode::brief() const { return params.width * params.height * params.elementSize <= brief_bytes; }

CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS& params, Context* context, NodePtr* out) {
  unsigned unit = params.elementSize;
  size_t row, skipped, bytes;
  if (unit != 1 && unit != 2 && unit != 4) return CUDA_ERROR_INVALID_VALUE;
  if (params.dst % unit || (params.height > 1 && params.pitch % unit)) return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_mul_overflow(params.width, unit, &row)) return CUDA_ERROR_INVALID_VALUE;
  if (params.width && params.height) {
    if (params.height > 1 && params.pitch < row) return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(params.height - 1, params.pitch, &skipped)) return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_add_overflow(skipped, row, &bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (!inside(params.dst, bytes, false)) return CUDA_ERROR_INVALID_VALUE;
  }
  *out = std::make_shared<FillNode>(params, context);
  return CUDA_SUCCESS;
}

// The entries of one width: plain and per-thread, waited for and not, rows and planes.
#define FILLS(bits, type)                                                                                      \
  HCQ_API cuMemsetD##bits##_v2(CUdeviceptr at, type value, size_t count) {                                     \
    return fill_async(at, 0, value, bits / 8, count, 1, CU_STREAM_LEGACY, true);                               \
  }                                                                                                            \
  HCQ_API cuMemsetD##bits##_v2_ptds(CUdeviceptr at, type value, size_t count) {                                \
    return fill_async(at, 0, value, bits / 8, count, 1, CU_STREAM_PER_THREAD, true);                           \
  }                                                                                                            \
  HCQ_API cuMemsetD##bits##Async(CUdeviceptr at, type value, size_t count, CUstream stream) {                  \
    return fill_async(at, 0, value, bits / 8, count, 1, stream, false);                                        \
  }                                                                                                            \
  HCQ_API cuMemsetD##bits##Async_ptsz(CUdeviceptr at, type value, size_t count, CUstream stream) {             \
    return fill_async(at, 0, value, bits / 8, count, 1, ptsz(stream), false);                                  \
  }                                                                                                            \
  HCQ_API cuMemsetD2D##bits##_v2(CUdeviceptr at, size_t pitch, type value, size_t width, size_t height) {      \
    return fill_async(at, pitch, value, bits / 8, width, height, CU_STREAM_LEGACY, true);                      \
  }                                                                                                            \
  HCQ_API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr at, size_t pitch, type value, size_t width, size_t height) { \
    return fill_async(at, pitch, value, bits / 8, width, height, CU_STREAM_PER_THREAD, true);                  \
  }                                                                                                            \
  HCQ_API cuMemsetD2D##bits##Async(CUdeviceptr at, size_t pitch, type value, size_t width, size_t height,      \
                                   CUstream stream) {                                                          \
    return fill_async(at, pitch, value, bits / 8, width, height, stream, false);                               \
  }                                                                                                            \
  HCQ_API cuMemsetD2D##bits##Async_ptsz(CUdeviceptr at, size_t pitch, type value, size_t width, size_t height, \
                                        CUstream stream) {                                                     \
    return fill_async(at, pitch, value, bits / 8, width, height, ptsz(stream), false);                         \
  }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

}  // namespace cudacpu
