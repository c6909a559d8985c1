// The API's entries for copies. What does not live here: copies themselves (copy.cpp).
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "memory/copy.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

constexpr CUmemorytype on_host = CU_MEMORYTYPE_HOST, on_device = CU_MEMORYTYPE_DEVICE, anywhere = CU_MEMORYTYPE_UNIFIED;

uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }

bool is_context(CUcontext handle) { return handles<Context>().find(handle) != nullptr; }

CUresult run(const CUDA_MEMCPY3D& params, CUstream stream, bool wait) {
  return with_context([&](Context&) { return wait ? copy_now(params, stream) : copy_async(params, stream); });
}

CUresult flat(CUmemorytype to, uint64_t dst, CUmemorytype from, uint64_t src, size_t bytes, CUstream stream,
              bool wait) {
  return run(flat_copy(to, dst, from, src, bytes), stream, wait);
}

CUresult peer(uint64_t dst, CUcontext to, uint64_t src, CUcontext from, size_t bytes, CUstream stream, bool wait) {
  if (!is_context(to) || !is_context(from)) return CUDA_ERROR_INVALID_CONTEXT;
  return flat(on_device, dst, on_device, src, bytes, stream, wait);
}

CUresult plane(const CUDA_MEMCPY2D* p, CUstream stream, bool wait) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D params = {};
  params.srcXInBytes = p->srcXInBytes;
  params.srcY = p->srcY;
  params.srcMemoryType = p->srcMemoryType;
  params.srcHost = p->srcHost;
  params.srcDevice = p->srcDevice;
  params.srcArray = p->srcArray;
  params.srcPitch = p->srcPitch;
  params.dstXInBytes = p->dstXInBytes;
  params.dstY = p->dstY;
  params.dstMemoryType = p->dstMemoryType;
  params.dstHost = p->dstHost;
  params.dstDevice = p->dstDevice;
  params.dstArray = p->dstArray;
  params.dstPitch = p->dstPitch;
  params.WidthInBytes = p->WidthInBytes;
  params.Height = p->Height;
  params.Depth = 1;
  return run(params, stream, wait);
}

CUresult box(const CUDA_MEMCPY3D* p, CUstream stream, bool wait) {
  return p ? run(*p, stream, wait) : CUDA_ERROR_INVALID_VALUE;
}

CUresult box_peer(const CUDA_MEMCPY3D_PEER* p, CUstream stream, bool wait) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (!is_context(p->srcContext) || !is_context(p->dstContext)) return CUDA_ERROR_INVALID_CONTEXT;
  static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D));  // the contexts are the other's reserved words
  CUDA_MEMCPY3D params = reinterpret_cast<const CUDA_MEMCPY3D&>(*p);
  params.reserved0 = params.reserved1 = nullptr;
  return run(params, stream, wait);
}

bool valid(CUmemcpySrcAccessOrder order, unsigned flags) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

CUresult with_attributes(uint64_t dst, uint64_t src, size_t bytes, const CUmemcpyAttributes* how, CUstream stream) {
  if (how && !valid(how->srcAccessOrder, how->flags)) return CUDA_ERROR_INVALID_VALUE;
  bool read_now = how && how->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  return with_context(
      [&](Context&) { return copy_async(flat_copy(anywhere, dst, anywhere, src, bytes), stream, read_now); });
}

CUresult batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes, size_t count,
               const CUmemcpyAttributes* hows, const size_t* firsts, size_t how_count, size_t* failed,
               CUstream stream) {
  if (failed) *failed = SIZE_MAX;
  if (!dsts || !srcs || !sizes || !count || !hows || !firsts || !how_count || how_count > count || firsts[0]) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!stream || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 1; i < how_count; i++) {
    if (firsts[i] <= firsts[i - 1] || firsts[i] >= count) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0, how = 0; i < count; i++) {
    if (how + 1 < how_count && firsts[how + 1] == i) how++;
    CUresult result = with_attributes(dsts[i], srcs[i], sizes[i], &hows[how], stream);
    if (result && failed) *failed = i;
    if (result) return result;
  }
  return CUDA_SUCCESS;
}

CUresult box_with_attributes(const CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags, CUstream stream) {
  if (!op || flags || !valid(op->srcAccessOrder, op->flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!op->extent.width || !op->extent.height || !op->extent.depth) return CUDA_ERROR_INVALID_VALUE;
  if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUDA_MEMCPY3D params = flat_copy(anywhere, op->dst.op.ptr.ptr, anywhere, op->src.op.ptr.ptr, op->extent.width);
  params.Height = op->extent.height;
  params.Depth = op->extent.depth;
  params.srcPitch = op->src.op.ptr.rowLength;
  params.srcHeight = op->src.op.ptr.layerHeight;
  params.dstPitch = op->dst.op.ptr.rowLength;
  params.dstHeight = op->dst.op.ptr.layerHeight;
  bool read_now = op->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  return with_context([&](Context&) { return copy_async(params, stream, read_now); });
}

CUresult box_batch(size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed, unsigned long long flags,
                   CUstream stream) {
  if (failed) *failed = SIZE_MAX;
  if (!count || !ops || !stream || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    CUresult result = box_with_attributes(&ops[i], flags, stream);
    if (result && failed) *failed = i;
    if (result) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// Two entries that differ in what the default stream is: the context's or the thread's. WAITED have no stream of their
// own and wait; QUEUED have one. `stream` in the expression is the one to use.
#define WAITED(name, expression, ...)             \
  HCQ_API name(__VA_ARGS__) {                     \
    const CUstream stream = CU_STREAM_LEGACY;     \
    return expression;                            \
  }                                               \
  HCQ_API name##_ptds(__VA_ARGS__) {              \
    const CUstream stream = CU_STREAM_PER_THREAD; \
    return expression;                            \
  }
#define QUEUED(name, expression, ...)                               \
  HCQ_API name(__VA_ARGS__, CUstream stream) { return expression; } \
  HCQ_API name##_ptsz(__VA_ARGS__, CUstream given) {                \
    const CUstream stream = ptsz(given);                            \
    return expression;                                              \
  }

WAITED(cuMemcpy, flat(anywhere, dst, anywhere, src, bytes, stream, true), CUdeviceptr dst, CUdeviceptr src,
       size_t bytes)
QUEUED(cuMemcpyAsync, flat(anywhere, dst, anywhere, src, bytes, stream, false), CUdeviceptr dst, CUdeviceptr src,
       size_t bytes)
WAITED(cuMemcpyHtoD_v2, flat(on_device, dst, on_host, address(src), bytes, stream, true), CUdeviceptr dst,
       const void* src, size_t bytes)
QUEUED(cuMemcpyHtoDAsync_v2, flat(on_device, dst, on_host, address(src), bytes, stream, false), CUdeviceptr dst,
       const void* src, size_t bytes)
WAITED(cuMemcpyDtoH_v2, flat(on_host, address(dst), on_device, src, bytes, stream, true), void* dst, CUdeviceptr src,
       size_t bytes)
QUEUED(cuMemcpyDtoHAsync_v2, flat(on_host, address(dst), on_device, src, bytes, stream, false), void* dst,
       CUdeviceptr src, size_t bytes)
WAITED(cuMemcpyDtoD_v2, flat(on_device, dst, on_device, src, bytes, stream, true), CUdeviceptr dst, CUdeviceptr src,
       size_t bytes)
QUEUED(cuMemcpyDtoDAsync_v2, flat(on_device, dst, on_device, src, bytes, stream, false), CUdeviceptr dst,
       CUdeviceptr src, size_t bytes)
WAITED(cuMemcpyPeer, peer(dst, to, src, from, bytes, stream, true), CUdeviceptr dst, CUcontext to, CUdeviceptr src,
       CUcontext from, size_t bytes)
QUEUED(cuMemcpyPeerAsync, peer(dst, to, src, from, bytes, stream, false), CUdeviceptr dst, CUcontext to,
       CUdeviceptr src, CUcontext from, size_t bytes)
WAITED(cuMemcpy2D_v2, plane(params, stream, true), const CUDA_MEMCPY2D* params)
WAITED(cuMemcpy2DUnaligned_v2, plane(params, stream, true), const CUDA_MEMCPY2D* params)
QUEUED(cuMemcpy2DAsync_v2, plane(params, stream, false), const CUDA_MEMCPY2D* params)
WAITED(cuMemcpy3D_v2, box(params, stream, true), const CUDA_MEMCPY3D* params)
QUEUED(cuMemcpy3DAsync_v2, box(params, stream, false), const CUDA_MEMCPY3D* params)
WAITED(cuMemcpy3DPeer, box_peer(params, stream, true), const CUDA_MEMCPY3D_PEER* params)
QUEUED(cuMemcpy3DPeerAsync, box_peer(params, stream, false), const CUDA_MEMCPY3D_PEER* params)
QUEUED(cuMemcpyWithAttributesAsync, with_attributes(dst, src, bytes, how, stream), CUdeviceptr dst, CUdeviceptr src,
       size_t bytes, CUmemcpyAttributes* how)
QUEUED(cuMemcpyBatchAsync, batch(dsts, srcs, sizes, count, hows, firsts, how_count, failed, stream), CUdeviceptr* dsts,
       CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* hows, size_t* firsts, size_t how_count,
       size_t* failed)
QUEUED(cuMemcpyBatchAsync_v2, batch(dsts, srcs, sizes, count, hows, firsts, how_count, nullptr, stream),
       CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* hows, size_t* firsts,
       size_t how_count)
QUEUED(cuMemcpy3DWithAttributesAsync, box_with_attributes(op, flags, stream), CUDA_MEMCPY3D_BATCH_OP* op,
       unsigned long long flags)
QUEUED(cuMemcpy3DBatchAsync, box_batch(count, ops, failed, flags, stream), size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
       size_t* failed, unsigned long long flags)
QUEUED(cuMemcpy3DBatchAsync_v2, box_batch(count, ops, nullptr, flags, stream), size_t count,
       CUDA_MEMCPY3D_BATCH_OP* ops, unsigned long long flags)

}  // namespace cudacpu
