// Events. What does not live here: events inside a capture (capture.hpp).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "stream/stream.hpp"

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
  // Puts a record into the stream's queue.
  CUresult record(const std::shared_ptr<Stream>& on);
  // Notes a record that is part of a node of the stream's queue.
  void note(CompletionPtr completion, const std::shared_ptr<Stream>& on, uint64_t position);
  // Waits for the last record.
  CUresult synchronize();

 private:
  std::mutex lock_;  // guards the rest; the scheduler's lock may be taken under it
  CompletionPtr last_;
  std::shared_ptr<Stream> stream_;  // where the last record is queued, and as which node
  uint64_t position_ = 0;
};

// A node that is a record, and one that waits for it.
NodePtr make_record(CompletionPtr completion);
NodePtr make_wait(CompletionPtr completion);

// A node of a graph. Which record is made or awaited is settled by each launch, which has such a node as above in its
// place: see Run.
struct EventNode : Node {
  const std::shared_ptr<Event> event;
  const CUgraphNodeType type;
  EventNode(std::shared_ptr<Event> event, CUgraphNodeType type) : event(std::move(event)), type(type) {}
  CUgraphNodeType kind() const override { return type; }
  CUresult run(Context&) const override { return CUDA_SUCCESS; }
};

CUresult make_event_record(CUevent event, NodePtr* out);
CUresult make_event_wait(CUevent event, NodePtr* out);

}  // namespace cudacpu
