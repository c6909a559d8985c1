// Copies: see copy.hpp.
#include "memory/copy.hpp"

#include <algorithm>
#include <cstring>

#include "graph/capture.hpp"
#include "memory/memory.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

// One side of a copy, with its pitches filled in.
struct Side {
  CUmemorytype type;
  uint64_t base;
  size_t x, y, z, pitch, height;

  uint64_t row(size_t line, size_t layer) const { return base + ((z + layer) * height + y + line) * pitch + x; }
};

uint64_t address(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
}

Side source(const CUDA_MEMCPY3D& p) {
  return {p.srcMemoryType,
          address(p.srcMemoryType, p.srcHost, p.srcDevice),
          p.srcXInBytes,
          p.srcY,
          p.srcZ,
          p.srcPitch ? p.srcPitch : p.srcXInBytes + p.WidthInBytes,
          p.srcHeight ? p.srcHeight : p.srcY + p.Height};
}

Side destination(const CUDA_MEMCPY3D& p) {
  return {p.dstMemoryType,
          address(p.dstMemoryType, p.dstHost, p.dstDevice),
          p.dstXInBytes,
          p.dstY,
          p.dstZ,
          p.dstPitch ? p.dstPitch : p.dstXInBytes + p.WidthInBytes,
          p.dstHeight ? p.dstHeight : p.dstY + p.Height};
}

// The bytes from the first to the one past the last that a side touches; false when that is no size at all.
bool span(const Side& side, const CUDA_MEMCPY3D& p, uint64_t* first, size_t* bytes) {
  if (side.pitch < side.x + p.WidthInBytes || side.height < side.y + p.Height) return false;
  unsigned __int128 from = (static_cast<unsigned __int128>(side.z) * side.height + side.y) * side.pitch + side.x;
  unsigned __int128 lines = static_cast<unsigned __int128>(p.Depth - 1) * side.height + p.Height - 1;
  unsigned __int128 length = lines * side.pitch + p.WidthInBytes;
  if (lines >> 48 || (from + length) >> 48 || side.base + static_cast<uint64_t>(from + length) < side.base)
    return false;
  *first = side.base + static_cast<uint64_t>(from);
  *bytes = static_cast<size_t>(length);
  return true;
}

bool fine(const Side& side, const CUDA_MEMCPY3D& p) {
  if (side.type < CU_MEMORYTYPE_HOST || side.type > CU_MEMORYTYPE_UNIFIED) return false;
  uint64_t first;
  size_t bytes;
  return span(side, p, &first, &bytes) && inside(first, bytes, side.type != CU_MEMORYTYPE_DEVICE);
}

bool pageable(const Side& side, const CUDA_MEMCPY3D& p) {
  uint64_t first;
  size_t bytes;
  return side.type != CU_MEMORYTYPE_DEVICE && span(side, p, &first, &bytes) && !find_range(first);
}

bool empty(const CUDA_MEMCPY3D& p) { return !p.WidthInBytes || !p.Height || !p.Depth; }

// Ranges that overlap are copied upwards, piece by piece, as a device may: CUDA says nothing of what comes of it, and
// who relies on more should find out here.
void move(uint64_t to, uint64_t from, size_t bytes) {
  constexpr size_t piece = 16;
  auto* target = reinterpret_cast<uint8_t*>(to);
  auto* source = reinterpret_cast<const uint8_t*>(from);
  if (to <= from || to - from >= bytes) {
    std::memmove(target, source, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += piece) std::memmove(target + at, source + at, std::min(piece, bytes - at));
}

void copy_rows(const Side& to, const Side& from, const CUDA_MEMCPY3D& p) {
  bool whole = to.pitch == p.WidthInBytes && from.pitch == p.WidthInBytes;  // the rows of a layer are one
  size_t bytes = whole ? p.WidthInBytes * p.Height : p.WidthInBytes;
  for (size_t layer = 0; layer < p.Depth; layer++) {
    for (size_t line = 0; line < (whole ? 1 : p.Height); line++) {
      move(to.row(line, layer), from.row(line, layer), bytes);
    }
  }
}

// A copy of a pageable source, which the node keeps.
std::shared_ptr<CopyNode> staged(const CUDA_MEMCPY3D& params) {
  CUDA_MEMCPY3D inner = params;
  auto buffer = std::make_unique<char[]>(params.WidthInBytes * params.Height * params.Depth);
  inner.srcMemoryType = CU_MEMORYTYPE_HOST;
  inner.srcHost = buffer.get();
  inner.srcXInBytes = inner.srcY = inner.srcZ = 0;
  inner.srcPitch = params.WidthInBytes;
  inner.srcHeight = params.Height;
  Side to = source(inner);
  copy_rows(to, source(params), params);
  auto node = std::make_shared<CopyNode>(inner, nullptr);
  node->staged = std::move(buffer);
  return node;
}

CUresult check(const CUDA_MEMCPY3D& params) {
  if (params.srcMemoryType == CU_MEMORYTYPE_ARRAY || params.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (params.srcLOD || params.dstLOD) return CUDA_ERROR_INVALID_VALUE;
  if (empty(params)) return CUDA_SUCCESS;
  return fine(source(params), params) && fine(destination(params), params) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CopyNode::run(Context&) const {
  if (!empty(params)) copy_rows(destination(params), source(params), params);
  return CUDA_SUCCESS;
}

bool CopyNode::brief() const { return params.WidthInBytes * params.Height * params.Depth <= brief_bytes; }

CUresult make_memcpy(const CUDA_MEMCPY3D& params, Context* context, NodePtr* out) {
  if (CUresult result = check(params)) return result;
  *out = std::make_shared<CopyNode>(params, context);
  return CUDA_SUCCESS;
}

CUDA_MEMCPY3D flat_copy(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type, uint64_t src, size_t bytes) {
  CUDA_MEMCPY3D params = {};
  params.srcMemoryType = src_type;
  params.srcHost = reinterpret_cast<const void*>(src);
  params.srcDevice = src;
  params.dstMemoryType = dst_type;
  params.dstHost = reinterpret_cast<void*>(dst);
  params.dstDevice = dst;
  params.WidthInBytes = bytes;
  params.Height = params.Depth = 1;
  return params;
}

CUresult copy_async(const CUDA_MEMCPY3D& params, CUstream handle, bool read_now) {
  if (CUresult result = check(params)) return result;
  std::shared_ptr<Stream> stream;
  if (CUresult result = find_stream(*Context::current(), handle, &stream)) return result;
  if (is_capturing(*stream)) return submit(stream, std::make_shared<CopyNode>(params, nullptr));
  if (empty(params)) return CUDA_SUCCESS;
  if (pageable(destination(params), params)) {
    CUresult result = submit(stream, std::make_shared<CopyNode>(params, nullptr));
    return result ? result : synchronize(stream);
  }
  read_now |= pageable(source(params), params);
  bool keep = read_now && !idle(stream);
  CUresult result = submit(stream, keep ? staged(params) : std::make_shared<CopyNode>(params, nullptr));
  return result || keep || !read_now ? result : synchronize(stream);  // an idle stream has it done at once
}

CUresult copy_now(const CUDA_MEMCPY3D& params, CUstream handle) {
  if (CUresult result = check(params)) return result;
  if (CUresult result = check_unsafe()) return result;
  std::shared_ptr<Stream> stream;
  if (CUresult result = find_stream(*Context::current(), handle, &stream)) return result;
  CUresult result = submit(stream, std::make_shared<CopyNode>(params, nullptr));
  return result ? result : synchronize(stream);
}

}  // namespace cudacpu
