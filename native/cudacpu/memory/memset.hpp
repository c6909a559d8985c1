// Fills. What does not live here: copies (copy.hpp).
#pragma once
#include "stream/node.hpp"

namespace cudacpu {

struct FillNode : Node {
  const CUDA_MEMSET_NODE_PARAMS params;
  Context* const context;  // of the graph node's parameters; null for a stream's

  FillNode(const CUDA_MEMSET_NODE_PARAMS& params, Context* context) : params(params), context(context) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUresult run(Context& context) const override;
  bool brief() const override;
};

// The node for a fill of memory that is known; CUDA_ERROR_INVALID_VALUE else.
CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS& params, Context* context, NodePtr* out);

}  // namespace cudacpu
