// Events: see event.hpp. What does not live here: the API's entries for them (event_api.cpp).
#include "stream/event.hpp"

#include <chrono>

#include "api/handle.hpp"
#include "graph/capture.hpp"

namespace cudacpu {
namespace {

uint64_t now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void complete(Completion& completion, CUresult result) {
  completion.time = now();
  completion.result = result;
  completion.done.store(true, std::memory_order_release);  // after the two above
}

// A record in a stream's queue.
struct RecordNode : Node {
  CompletionPtr completion;
  explicit RecordNode(CompletionPtr completion) : completion(std::move(completion)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
  CUresult run(Context&) const override { return complete(*completion, CUDA_SUCCESS), CUDA_SUCCESS; }
  void skip(Context&, CUresult cause) const override { complete(*completion, cause); }
  bool brief() const override { return true; }
};

struct WaitNode : Node {
  CompletionPtr completion;
  explicit WaitNode(CompletionPtr completion) : completion(std::move(completion)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
  CUresult run(Context&) const override {
    return completion->done.load(std::memory_order_acquire) ? CUDA_SUCCESS
                                                            : again;  // what was before the record is seen
  }
  bool brief() const override { return true; }
};

CUresult find(CUevent handle, std::shared_ptr<Event>* out) {
  *out = handles<Event>().share(handle);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// A context's events end with it.
const bool hooked = [] {
  reset_hooks().push_back([](Context& context) {
    for (const auto& event : handles<Event>().remove_if([&](Event& one) { return &one.context == &context; })) {
      uncapture_event(*event);
    }
  });
  return true;
}();

}  // namespace

CompletionPtr Event::last() {
  std::lock_guard<std::mutex> hold(lock_);
  return last_;
}

void Event::note(CompletionPtr completion, const std::shared_ptr<Stream>& on, uint64_t position) {
  std::lock_guard<std::mutex> hold(lock_);
  last_ = std::move(completion);
  stream_ = on;
  position_ = position;
}

CUresult Event::record(const std::shared_ptr<Stream>& on) {
  auto made = std::make_shared<Completion>();
  std::lock_guard<std::mutex> hold(lock_);
  uint64_t position = 0;
  CUresult result = enqueue(on, std::make_shared<RecordNode>(made), &position);
  if (result) return result;
  last_ = std::move(made);
  stream_ = on;
  position_ = position;
  return CUDA_SUCCESS;
}

CUresult Event::synchronize() {
  CompletionPtr record;
  std::shared_ptr<Stream> stream;
  uint64_t position;
  {
    std::lock_guard<std::mutex> hold(lock_);
    record = last_;
    stream = stream_;
    position = position_;
  }
  if (!record) return CUDA_SUCCESS;
  if (!record->done.load(std::memory_order_acquire)) {  // what was before the record is seen
    if (CUresult result = synchronize_to(stream, position)) return result;
  }
  return record->result;
}

NodePtr make_record(CompletionPtr completion) { return std::make_shared<RecordNode>(std::move(completion)); }
NodePtr make_wait(CompletionPtr completion) { return std::make_shared<WaitNode>(std::move(completion)); }

CUresult make_event_record(CUevent handle, NodePtr* out) {
  std::shared_ptr<Event> event;
  if (CUresult result = find(handle, &event)) return result;
  *out = std::make_shared<EventNode>(std::move(event), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  return CUDA_SUCCESS;
}

CUresult make_event_wait(CUevent handle, NodePtr* out) {
  std::shared_ptr<Event> event;
  if (CUresult result = find(handle, &event)) return result;
  *out = std::make_shared<EventNode>(std::move(event), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  return CUDA_SUCCESS;
}

}  // namespace cudacpu
