// The API's entries for events. What does not live here: what an event is (event.cpp).
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "graph/capture.hpp"
#include "stream/event.hpp"

namespace cudacpu {
namespace {

using EventPtr = std::shared_ptr<Event>;

// Runs `body(event)` for a handle of an event.
template <class F>
CUresult with_event(CUevent handle, F&& body) {
  return with_init([&]() -> CUresult {
    EventPtr event = handles<Event>().share(handle);
    return event ? body(event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// Runs `body(event, stream)`; the stream as in the calling thread's context.
template <class F>
CUresult with_both(CUevent handle, CUstream stream, F&& body) {
  return with_context([&](Context& context) -> CUresult {
    EventPtr event = handles<Event>().share(handle);
    std::shared_ptr<Stream> found;
    CUresult result = event ? find_stream(context, stream, &found) : CUDA_ERROR_INVALID_HANDLE;
    return result ? result : body(event, found);
  });
}

CUresult finished(Event& event) {
  CompletionPtr record = event.last();
  if (!record) return CUDA_SUCCESS;
  // Acquire: what was before the record is seen.
  return record->done.load(std::memory_order_acquire) ? record->result : CUDA_ERROR_NOT_READY;
}

}  // namespace

HCQ_API cuEventCreate(CUevent* out, unsigned flags) {
  return with_context([&](Context& context) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (!out || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS) {
      return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    auto event = std::make_shared<Event>(context, flags);
    event->handle = static_cast<CUevent>(handles<Event>().add(event));
    *out = event->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuEventDestroy_v2(CUevent handle) {
  return with_init([&] {
    EventPtr event = handles<Event>().remove(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    uncapture_event(*event);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

HCQ_API cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  return with_both(handle, stream, [&](const EventPtr& event, const std::shared_ptr<Stream>& on) {
    if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    if (&event->context != &on->context) return CUDA_ERROR_INVALID_HANDLE;
    if (is_capturing(*on) && flags != CU_EVENT_RECORD_EXTERNAL) return capture_record(*on, *event);
    if (is_capturing(*on)) return submit(on, std::make_shared<EventNode>(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD));
    if (CUresult result = check_legacy(*on)) return result;
    uncapture_event(*event);
    return event->record(on);
  });
}

HCQ_API cuEventRecord(CUevent handle, CUstream stream) { return cuEventRecordWithFlags(handle, stream, 0); }

HCQ_API cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags) {
  return with_both(handle, stream, [&](const EventPtr& event, const std::shared_ptr<Stream>& on) {
    if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    if (is_capturing(*on) && flags == CU_EVENT_WAIT_EXTERNAL)
      return submit(on, std::make_shared<EventNode>(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT));
    bool done = false;
    CUresult result = capture_wait(*on, *event, &done);
    if (!result && !done) result = check_legacy(*on);
    if (result || done) return result;
    CompletionPtr record = event->last();
    return record ? enqueue(on, make_wait(std::move(record))) : CUDA_SUCCESS;
  });
}

HCQ_API cuEventQuery(CUevent handle) {
  return with_event(handle, [&](const EventPtr& event) {
    CUresult result = check_event(*event);
    return result ? result : finished(*event);
  });
}

HCQ_API cuEventSynchronize(CUevent handle) {
  return with_event(handle, [&](const EventPtr& event) {
    CUresult result = check_event(*event);
    return result ? result : event->synchronize();
  });
}

HCQ_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return with_event(start, [&](const EventPtr& first) {
    return with_event(end, [&](const EventPtr& last) -> CUresult {
      if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
      for (const EventPtr& event : {first, last}) {
        if (CUresult result = check_event(*event)) return result;
      }
      if (!first->timed() || !last->timed() || !first->last() || !last->last()) return CUDA_ERROR_INVALID_HANDLE;
      CUresult result = finished(*first);
      if (!result) result = finished(*last);
      if (result) return result;
      auto time = [](Event& event) { return static_cast<double>(event.last()->time); };
      *milliseconds = static_cast<float>((time(*last) - time(*first)) * 1e-6);
      return CUDA_SUCCESS;
    });
  });
}

HCQ_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

HCQ_API cuEventRecord_ptsz(CUevent event, CUstream stream) { return cuEventRecord(event, ptsz(stream)); }
HCQ_API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
  return cuEventRecordWithFlags(event, ptsz(stream), flags);
}
HCQ_API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return cuStreamWaitEvent(ptsz(stream), event, flags);
}

}  // namespace cudacpu
