// Host functions: nodes that call the user's code. What does not live here: the other nodes.
#pragma once
#include "api/api_graph.hpp"
#include "stream/node.hpp"

namespace cudacpu {

struct HostNode : Node {
  const CUDA_HOST_NODE_PARAMS params;
  explicit HostNode(const CUDA_HOST_NODE_PARAMS& params) : params(params) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  CUresult run(Context& context) const override;
};

CUresult make_host(const CUDA_HOST_NODE_PARAMS& params, NodePtr* out);

}  // namespace cudacpu
