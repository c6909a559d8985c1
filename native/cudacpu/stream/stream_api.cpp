// The API's entries for streams. What does not live here: when nodes run (stream.cpp), capture (capture_api.cpp).
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "graph/capture.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

HCQ_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return with_context([&](Context& context) {
    if (!out || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    priority = priority < greatest_priority ? greatest_priority : priority > least_priority ? least_priority : priority;
    auto stream = std::make_shared<Stream>(context, flags, priority);
    stream->handle = static_cast<CUstream>(handles<Stream>().add(stream));
    add_stream(stream);
    *out = stream->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamCreate(CUstream* out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

HCQ_API cuStreamDestroy_v2(CUstream handle) {
  return with_init([&]() -> CUresult {
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
    StreamPtr stream = handles<Stream>().remove(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    capture_destroyed(*stream);
    end_stream(stream);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

HCQ_API cuStreamGetPriority(CUstream stream, int* priority) {
  return with_stream(stream, [&](const StreamPtr& found) {
    if (!priority) return CUDA_ERROR_INVALID_VALUE;
    *priority = found->priority.load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return with_stream(stream, [&](const StreamPtr& found) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = found->flags;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamGetId(CUstream stream, unsigned long long* id) {
  return with_stream(stream, [&](const StreamPtr& found) {
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    *id = found->id;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return with_stream(stream, [&](const StreamPtr& found) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = found->context.device.ordinal;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return with_stream(stream, [&](const StreamPtr& found) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = found->context.handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  if (green) *green = nullptr;
  return cuStreamGetCtx(stream, context);
}

HCQ_API cuStreamQuery(CUstream stream) {
  return with_stream(stream, [&](const StreamPtr& found) -> CUresult {
    CUresult result = check_waiting(*found);
    return result ? result : idle(found) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

HCQ_API cuStreamSynchronize(CUstream stream) {
  return with_stream(stream, [&](const StreamPtr& found) -> CUresult {
    CUresult result = check_waiting(*found);
    return result ? result : synchronize(found);
  });
}

HCQ_API cuStreamGetPriority_ptsz(CUstream stream, int* priority) { return cuStreamGetPriority(ptsz(stream), priority); }
HCQ_API cuStreamGetFlags_ptsz(CUstream stream, unsigned* flags) { return cuStreamGetFlags(ptsz(stream), flags); }
HCQ_API cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) { return cuStreamGetId(ptsz(stream), id); }
HCQ_API cuStreamGetDevice_ptsz(CUstream stream, CUdevice* device) { return cuStreamGetDevice(ptsz(stream), device); }
HCQ_API cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) { return cuStreamGetCtx(ptsz(stream), context); }
HCQ_API cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return cuStreamGetCtx_v2(ptsz(stream), context, green);
}
HCQ_API cuStreamQuery_ptsz(CUstream stream) { return cuStreamQuery(ptsz(stream)); }
HCQ_API cuStreamSynchronize_ptsz(CUstream stream) { return cuStreamSynchronize(ptsz(stream)); }

}  // namespace cudacpu
