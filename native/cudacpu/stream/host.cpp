// Host functions and stream callbacks, and the API's entries for them. What does not live here: streams.
#include "stream/host.hpp"

#include "api/entry.hpp"
#include "graph/capture.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

// Marks the thread while the user's code runs on it: that must not call the API.
struct InHostFunction {
  InHostFunction() { in_host_function = true; }
  ~InHostFunction() { in_host_function = false; }
};

// Unlike a host function it is told of the context's error, and no graph has it.
struct CallbackNode : Node {
  CUstream stream;
  CUstreamCallback function;
  void* data;
  CallbackNode(CUstream stream, CUstreamCallback function, void* data)
      : stream(stream), function(function), data(data) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  CUresult run(Context& context) const override { return skip(context, CUDA_SUCCESS), CUDA_SUCCESS; }
  void skip(Context&, CUresult cause) const override {
    InHostFunction marked;
    function(stream, cause, data);
  }
};

}  // namespace

CUresult HostNode::run(Context&) const {
  InHostFunction marked;
  params.fn(params.userData);
  return CUDA_SUCCESS;
}

CUresult make_host(const CUDA_HOST_NODE_PARAMS& params, NodePtr* out) {
  if (!params.fn) return CUDA_ERROR_INVALID_VALUE;
  *out = std::make_shared<HostNode>(params);
  return CUDA_SUCCESS;
}

HCQ_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return with_context([&](Context&) {
    NodePtr node;
    CUresult result = make_host({function, data}, &node);
    return result ? result : submit(stream, std::move(node));
  });
}

HCQ_API cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void* data, unsigned mode) {
  return mode > CU_HOST_TASK_SPINWAIT ? CUDA_ERROR_INVALID_VALUE : cuLaunchHostFunc(stream, function, data);
}

HCQ_API cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    if (!function || flags) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Stream> found;
    if (CUresult result = find_stream(context, stream, &found)) return result;
    if (CUresult result = check_waiting(*found)) return result;  // no graph has such a node
    return submit(found, std::make_shared<CallbackNode>(stream, function, data));
  });
}

HCQ_API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
  return cuLaunchHostFunc(ptsz(stream), function, data);
}
HCQ_API cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void* data, unsigned mode) {
  return cuLaunchHostFunc_v2(ptsz(stream), function, data, mode);
}
HCQ_API cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
  return cuStreamAddCallback(ptsz(stream), function, data, flags);
}

}  // namespace cudacpu
