// Stream capture: see capture.hpp.
#include "graph/capture.hpp"

#include <algorithm>
#include <unordered_set>

#include "graph/graph_exec.hpp"

namespace cudacpu {

thread_local CUstreamCaptureMode thread_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

namespace {

struct CapturedEvent {
  std::weak_ptr<Capture> capture;
  std::vector<Edge> after;
};

// Guarded by graph_mutex().
struct State {
  std::unordered_map<const Stream*, std::shared_ptr<Capture>> streams;
  std::vector<Capture*> captures;
  std::unordered_map<const Event*, CapturedEvent> events;
  uint64_t next_id = 1;
};

State& state() {
  static auto* one = new State();  // threads of the library may run until the process is gone
  return *one;
}

// Counts of the state, so that without captures nobody takes the lock. relaxed: a call that captures nothing itself is
// not ordered with a capture that begins in another thread.
std::atomic<size_t> live_captures{0}, captured_events{0};

// Runs `body() -> CUresult` with the lock, unless there is no capture.
template <class F>
CUresult if_capturing(F&& body) {
  if (!live_captures.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> hold(graph_mutex());
  return body();
}

Capture::Tip& tip(Capture& capture, const Stream& stream) { return capture.tips[const_cast<Stream*>(&stream)]; }

void join(const std::shared_ptr<Capture>& capture, Stream& stream) {
  state().streams[&stream] = capture;
  capture->tips[&stream];
  stream.capturing.store(true, std::memory_order_relaxed);  // for callers of the same thread; others take the lock
}

void add_edges(std::vector<Edge>& to, const std::vector<Edge>& more) {
  for (const Edge& edge : more) {
    if (std::none_of(to.begin(), to.end(), [&](const Edge& have) { return have.node == edge.node; }))
      to.push_back(edge);
  }
}

CUresult invalidate(Capture& capture, CUresult result) {
  capture.valid = false;
  return result;
}

}  // namespace

std::shared_ptr<Capture> capture_of(const Stream& stream) {
  auto found = state().streams.find(&stream);
  return found == state().streams.end() ? nullptr : found->second;
}

std::shared_ptr<Capture> begin_capture(Stream& stream, CUstreamCaptureMode mode, Graph* into) {
  auto capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->origin = &stream;
  if (!into) capture->own = std::make_unique<Graph>();
  capture->graph = into ? into : capture->own.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  join(capture, stream);
  ++capture->graph->captures;
  state().captures.push_back(capture.get());
  live_captures.store(state().captures.size(), std::memory_order_relaxed);
  return capture;
}

bool blocking_capture(const Context& context) {
  return std::any_of(state().streams.begin(), state().streams.end(),
                     [&](auto& each) { return &each.first->context == &context && each.first->blocking(); });
}

void end_capture(Capture& capture) {
  State& all = state();
  --capture.graph->captures;
  all.captures.erase(std::find(all.captures.begin(), all.captures.end(), &capture));
  live_captures.store(all.captures.size(), std::memory_order_relaxed);
  for (auto& [stream, tip] : capture.tips) {
    stream->capturing.store(false, std::memory_order_relaxed);
    all.streams.erase(stream);  // the last may end the capture itself: it is the caller's, who shares it
  }
}

CUresult capture_node_locked(Stream& stream, NodeBody body, GraphNode** added) {
  auto capture = capture_of(stream);
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;  // another thread ended it just now
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Capture::Tip& last = tip(*capture, stream);
  // Nodes may have been taken out of the caller's own graph meanwhile.
  CUresult result = add_node(*capture->graph, std::move(body), last.after, added);
  if (result) return invalidate(*capture, result);
  last.after = {{*added, {}}};
  return CUDA_SUCCESS;
}

CUresult capture_node(Stream& stream, const NodePtr& node) {
  std::lock_guard<std::mutex> hold(graph_mutex());
  GraphNode* added;
  return capture_node_locked(stream, {node->kind(), node, stream.context.handle}, &added);
}

CUresult capture_launch(CUstream handle, const GraphExec& exec) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream(context, handle, &stream);
    if (result) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    if (exec.sole) return CUDA_ERROR_NOT_SUPPORTED;  // its allocations can't be those of another graph too
    GraphNode* added;
    result = capture_node_locked(*stream, {CU_GRAPH_NODE_TYPE_GRAPH, nullptr, nullptr}, &added);
    if (!result) set_child(*added, graph_of(*exec.plan));
    return result;
  });
}

CUresult capture_record(Stream& stream, const Event& event) {
  std::lock_guard<std::mutex> hold(graph_mutex());
  auto capture = capture_of(stream);
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;  // another thread ended it just now
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  state().events[&event] = {capture, tip(*capture, stream).after};
  captured_events.store(state().events.size(), std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, const Event& event, bool* done) {
  *done = false;
  if (!is_capturing(stream) && !captured_events.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> hold(graph_mutex());
  auto mine = capture_of(stream);
  auto found = state().events.find(&event);
  if (!mine && found == state().events.end()) return CUDA_SUCCESS;
  *done = true;
  if (mine && !mine->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (found == state().events.end()) return invalidate(*mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  auto theirs = found->second.capture.lock();
  if (!theirs) return mine ? invalidate(*mine, CUDA_ERROR_CAPTURED_EVENT) : CUDA_ERROR_CAPTURED_EVENT;
  if (!theirs->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (mine && mine != theirs) {
    invalidate(*mine, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return invalidate(*theirs, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!mine && &stream == stream.context.legacy.get()) return invalidate(*theirs, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (!mine) join(theirs, stream);
  add_edges(tip(*theirs, stream).after, found->second.after);
  return CUDA_SUCCESS;
}

void uncapture_event(const Event& event) {
  if (!captured_events.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> hold(graph_mutex());
  state().events.erase(&event);
  captured_events.store(state().events.size(), std::memory_order_relaxed);
}

CUresult check_event(const Event& event) {
  if (!captured_events.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> hold(graph_mutex());
  auto found = state().events.find(&event);
  if (found == state().events.end()) return CUDA_SUCCESS;
  if (auto capture = found->second.capture.lock()) capture->valid = false;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult check_legacy(const Stream& stream) {
  if (&stream != stream.context.legacy.get()) return CUDA_SUCCESS;
  return if_capturing([&]() -> CUresult {
    CUresult result = CUDA_SUCCESS;
    for (auto& [other, capture] : state().streams) {
      if (&other->context != &stream.context || !other->blocking()) continue;
      result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    return result;
  });
}

CUresult check_waiting(const Stream& stream) {
  CUresult implicit = check_legacy(stream);
  if (implicit) return implicit;
  return if_capturing([&]() -> CUresult {
    auto capture = capture_of(stream);
    if (!capture) return CUDA_SUCCESS;
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  });
}

CUresult check_waiting(const Context& context) {
  return if_capturing([&]() -> CUresult {
    CUresult result = CUDA_SUCCESS;
    for (auto& [stream, capture] : state().streams) {
      if (&stream->context == &context) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
  });
}

CUresult check_unsafe() {
  return if_capturing([&]() -> CUresult {
    if (thread_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (Capture* capture : state().captures) {
      bool local = capture->thread == std::this_thread::get_id();
      bool forbids = local ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                           : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                 thread_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (forbids) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
  });
}

void end_captures(Context& context) {
  std::vector<std::unique_ptr<Graph>> dropped;  // go when the lock is given back
  std::lock_guard<std::mutex> hold(graph_mutex());
  std::vector<Capture*> all = state().captures;
  for (Capture* each : all) {
    bool here =
        std::any_of(each->tips.begin(), each->tips.end(), [&](auto& tip) { return &tip.first->context == &context; });
    if (!here) continue;
    auto capture = capture_of(*each->origin);
    capture->valid = false;
    end_capture(*capture);
    if (capture->own) capture->own->retire();
    dropped.push_back(std::move(capture->own));
  }
}

void capture_destroyed(Stream& stream) {
  if (!is_capturing(stream)) return;
  std::unique_ptr<Graph> dropped;  // goes when the lock is given back
  std::lock_guard<std::mutex> hold(graph_mutex());
  auto capture = capture_of(stream);
  if (!capture) return;
  if (capture->origin == &stream) {
    capture->valid = false;
    end_capture(*capture);
    if (capture->own) capture->own->retire();
    dropped = std::move(capture->own);
  } else {
    add_edges(capture->left, tip(*capture, stream).after);
    capture->tips.erase(&stream);
    state().streams.erase(&stream);
    stream.capturing.store(false, std::memory_order_relaxed);
  }
}

}  // namespace cudacpu
