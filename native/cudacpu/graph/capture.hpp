// Stream capture: which streams are captured, into what, and what calls may not do meanwhile. What does not live here:
// graphs (graph.hpp), the API's entries for captures (capture_api.cpp).
#pragma once
#include <thread>

#include "graph/graph.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

struct Event;
struct GraphExec;

// One sequence, from cuStreamBeginCapture to cuStreamEndCapture. Guarded by graph_mutex(), as all of this.
struct Capture {
  uint64_t id;
  Stream* origin;
  Graph* graph;
  std::unique_ptr<Graph> own;  // the graph, but where it was the caller's
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool valid = true;

  // What the next node of a stream comes after. Every stream of the sequence is here.
  struct Tip {
    std::vector<Edge> after;
    std::vector<CUgraphNode> nodes;  // as cuStreamGetCaptureInfo hands them out; good until the next call
    std::vector<CUgraphEdgeData> data;
  };
  std::unordered_map<Stream*, Tip> tips;
  std::vector<Edge> left;  // the tips of streams that were destroyed: what comes later has to have joined them
};

// The capture that a stream is part of; null where it is none. graph_mutex() is held.
std::shared_ptr<Capture> capture_of(const Stream& stream);
std::shared_ptr<Capture> begin_capture(Stream& stream, CUstreamCaptureMode mode, Graph* into);
// Whether a blocking stream of the context is part of one.
bool blocking_capture(const Context& context);
// Streams leave it and events forget where they were; its graph, if it is its own, is the caller's to destroy.
void end_capture(Capture& capture);
// The thread's, as cuThreadExchangeStreamCaptureMode() sets it.
extern thread_local CUstreamCaptureMode thread_capture_mode;

// What the calls of other parts ask. None needs a lock, and without a capture anywhere each costs one load.
inline bool is_capturing(const Stream& stream) { return stream.capturing.load(std::memory_order_relaxed); }

// Adds the node to the graph that the stream is being captured into.
CUresult capture_node(Stream& stream, const NodePtr& node);
// The same for a node of which the graph's one is wanted: `added`, with graph_mutex() held.
CUresult capture_node_locked(Stream& stream, NodeBody body, GraphNode** added);
CUresult capture_launch(CUstream stream, const GraphExec& exec);

// An event is recorded in a stream that is being captured: it remembers where.
CUresult capture_record(Stream& stream, const Event& event);
// A stream is to wait for an event and one of them is of a capture: joins, or says what is wrong. `*done` is false
// where neither is, and the wait is an ordinary one.
CUresult capture_wait(Stream& stream, const Event& event, bool* done);
// The event was recorded outside of a capture, or is gone.
void uncapture_event(const Event& event);
// CUDA_ERROR_CAPTURED_EVENT, to the end of the capture, where the event was last recorded in one.
CUresult check_event(const Event& event);
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, to the end of the capture, where work for the legacy stream would have to wait
// for a blocking stream that is being captured. The stream is any.
CUresult check_legacy(const Stream& stream);
// For calls that wait for the stream or ask how far it is: they end its capture, and a capture that it would wait for.
CUresult check_waiting(const Stream& stream);
// For calls that wait for the context's streams, likewise.
CUresult check_waiting(const Context& context);
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for calls that no graph would repeat, where captures forbid these.
CUresult check_unsafe();
// The context is destroyed: so are its captures.
void end_captures(Context& context);
// A stream is destroyed: a capture that began there is over, another goes on without it.
void capture_destroyed(Stream& stream);

}  // namespace cudacpu
