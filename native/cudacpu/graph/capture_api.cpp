// The API's entries for stream capture. What does not live here: what a capture is (capture.hpp).
#include <algorithm>
#include <unordered_set>

#include "graph/capture.hpp"

namespace cudacpu {

namespace {

// Calls `body(stream) -> CUresult` with what the handle means and graph_mutex() held. A context that failed is no
// hindrance: captures end nevertheless.
template <class F>
CUresult with_graphs_and(CUstream handle, F&& body) {
  return with_init([&]() -> CUresult {
    Context* context = Context::current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream(*context, handle, &stream);
    if (!stream) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    return body(*stream);
  });
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph into, const CUgraphNode* nodes,
               const CUgraphEdgeData* data, size_t count) {
  return with_graphs_and(handle, [&](Stream& stream) -> CUresult {
    if (CUresult failed = stream.context.error()) return failed;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (&stream == stream.context.legacy.get()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (capture_of(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    Graph* graph = into ? find_graph(into) : nullptr;
    std::vector<Edge> after;
    if (into && !graph) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = edges_of(nodes, data, count, &after);
    if (result) return result;
    for (const Edge& edge : after)
      if (edge.node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    begin_capture(stream, mode, graph)->tips[&stream].after = std::move(after);
    return CUDA_SUCCESS;
  });
}

// Whether a stream of the capture has work that the one where it began doesn't wait for.
bool unjoined(Capture& capture) {
  auto before = ancestors(capture.tips[capture.origin].after);
  std::unordered_set<const GraphNode*> joined(before.begin(), before.end());
  auto open = [&](const std::vector<Edge>& tip) {
    return std::any_of(tip.begin(), tip.end(), [&](const Edge& edge) { return !joined.count(edge.node); });
  };
  return open(capture.left) ||
         std::any_of(capture.tips.begin(), capture.tips.end(), [&](auto& each) { return open(each.second.after); });
}

CUresult end(CUstream handle, CUgraph* out) {
  std::unique_ptr<Graph> dropped;  // goes when the lock is given back
  return with_graphs_and(handle, [&](Stream& stream) -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto capture = capture_of(stream);
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != &stream) {
      capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = CUDA_SUCCESS;
    if (!capture->valid) {
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (unjoined(*capture)) {
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    end_capture(*capture);
    *out = result ? nullptr : capture->graph->handle;
    if (capture->own && result) {
      capture->own->retire();
      dropped = std::move(capture->own);
    } else if (capture->own) {
      publish(std::move(capture->own));
    }
    return result;
  });
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
              const CUgraphEdgeData** data, size_t* count) {
  return with_graphs_and(handle, [&](Stream& stream) -> CUresult {
    if (!status || (data && !nodes)) return CUDA_ERROR_INVALID_VALUE;
    if (&stream == stream.context.legacy.get() && blocking_capture(stream.context))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    auto capture = capture_of(stream);
    *status = !capture         ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                               : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (count) *count = 0;
    if (!capture || !capture->valid) return CUDA_SUCCESS;
    Capture::Tip& tip = capture->tips[&stream];
    tip.nodes.clear();
    tip.data.clear();
    for (const Edge& edge : tip.after) {
      if (nodes && !data && !plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
      tip.nodes.push_back(edge.node->handle);
      tip.data.push_back(edge.data);
    }
    if (id) *id = capture->id;
    if (graph) *graph = capture->graph->handle;
    if (nodes) *nodes = tip.nodes.data();
    if (data) *data = tip.data.data();
    if (count) *count = tip.nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult update(CUstream handle, const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count, unsigned flags) {
  return with_graphs_and(handle, [&](Stream& stream) -> CUresult {
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    auto capture = capture_of(stream);
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Edge> after;
    CUresult result = edges_of(nodes, data, count, &after);
    if (result) return result;
    std::vector<Edge> joined = flags ? std::vector<Edge>{} : capture->tips[&stream].after;
    for (const Edge& edge : after) {
      if (edge.node->graph != capture->graph) return CUDA_ERROR_INVALID_VALUE;
      auto same = [&](const Edge& have) { return have.node == edge.node; };
      if (std::none_of(joined.begin(), joined.end(), same)) joined.push_back(edge);
    }
    capture->tips[&stream].after = std::move(joined);
    return CUDA_SUCCESS;
  });
}

}  // namespace

// The first form has no mode.
HCQ_API cuStreamBeginCapture(CUstream stream) {
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, nullptr, 0);
}
HCQ_API cuStreamBeginCapture_ptsz(CUstream stream) { return cuStreamBeginCapture(ptsz(stream)); }

HCQ_API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, nullptr, nullptr, nullptr, 0);
}
HCQ_API cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return cuStreamBeginCapture_v2(ptsz(stream), mode);
}

HCQ_API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                    const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
  return graph ? begin(stream, mode, graph, nodes, data, count) : CUDA_ERROR_INVALID_VALUE;
}
HCQ_API cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                         const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
  return cuStreamBeginCaptureToGraph(ptsz(stream), graph, nodes, data, count, mode);
}

HCQ_API cuStreamEndCapture(CUstream stream, CUgraph* out) { return end(stream, out); }
HCQ_API cuStreamEndCapture_ptsz(CUstream stream, CUgraph* out) { return end(ptsz(stream), out); }

HCQ_API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* out) {
  return info(stream, out, nullptr, nullptr, nullptr, nullptr, nullptr);
}
HCQ_API cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* out) {
  return cuStreamIsCapturing(ptsz(stream), out);
}

HCQ_API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
HCQ_API cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return cuStreamGetCaptureInfo(ptsz(stream), status, id);
}

HCQ_API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                  const CUgraphNode** nodes, size_t* count) {
  return info(stream, status, id, graph, nodes, nullptr, count);
}
HCQ_API cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                       const CUgraphNode** nodes, size_t* count) {
  return cuStreamGetCaptureInfo_v2(ptsz(stream), status, id, graph, nodes, count);
}

HCQ_API cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                  const CUgraphNode** nodes, const CUgraphEdgeData** data, size_t* count) {
  return info(stream, status, id, graph, nodes, data, count);
}
HCQ_API cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                       const CUgraphNode** nodes, const CUgraphEdgeData** data, size_t* count) {
  return cuStreamGetCaptureInfo_v3(ptsz(stream), status, id, graph, nodes, data, count);
}

HCQ_API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags) {
  return update(stream, nodes, nullptr, count, flags);
}
HCQ_API cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags) {
  return update(ptsz(stream), nodes, nullptr, count, flags);
}

HCQ_API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* data,
                                             size_t count, unsigned flags) {
  return update(stream, nodes, data, count, flags);
}
HCQ_API cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* data,
                                                  size_t count, unsigned flags) {
  return update(ptsz(stream), nodes, data, count, flags);
}

HCQ_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_init([&]() -> CUresult {
    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_capture_mode);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
