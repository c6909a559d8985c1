// Events. What does not live here: events inside a capture (capture.hpp).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "stream.hpp"

namespace cudacpu {

// One record of an event: what waits for it keeps it, whatever happens to the event.
struct Completion {
  uint64_t time = 0;               // ns; written before done
  CUresult result = CUDA_SUCCESS;  // the context's error, where it failed before; written before done
  std::atomic<bool> done{false};   // release after the two above, acquire by who reads them
};

using CompletionPtr = std::shared_ptr<Completion>;

struct Event {
  Context& context;
  const unsigned flags;
  CUevent handle = nullptr;

  Event(Context& context, unsigned flags) : context(context), flags(flags) {}
  bool timed() const { return !(flags & CU_EVENT_DISABLE_TIMING); }
  // The last record; null before the first.
  CompletionPtr last();
  // Notes a record that has just happened.
  void record_now();
  // Puts a record into the stream's queue.
  CUresult record(const std::shared_ptr<Stream>& on);
  // Waits for the last record.
  CUresult synchronize();

 private:
  std::mutex lock_;  // guards the rest; the scheduler's lock may be taken under it
  CompletionPtr last_;
  std::shared_ptr<Stream> stream_;  // where the last record is queued, and as which node
  uint64_t position_ = 0;
};

// A node that waits for a record.
NodePtr make_wait(CompletionPtr completion);

// Nodes for graphs: what they record or wait for is looked up when they run.
struct EventRecordNode : Node {
  std::shared_ptr<Event> event;
  explicit EventRecordNode(std::shared_ptr<Event> event) : event(std::move(event)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
  CUresult run(Context& context) const override;
};

struct EventWaitNode : Node {
  std::shared_ptr<Event> event;
  explicit EventWaitNode(std::shared_ptr<Event> event) : event(std::move(event)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
  CUresult run(Context& context) const override;
};

CUresult make_event_record(CUevent event, NodePtr* out);
CUresult make_event_wait(CUevent event, NodePtr* out);

}  // namespace cudacpu
