// What the entries for one kind of a graph's nodes share: adding, asking for parameters, setting them. What does not
// live here: what parameters mean (graph_params.hpp).
#pragma once
#include "graph/graph_params.hpp"

namespace cudacpu {

// Adds a node of any kind. The address of an allocation goes into `params`.
CUresult add_with_params(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                         size_t count, CUgraphNodeParams params, CUdeviceptr* address = nullptr);
// Has the node do what the parameters say; they are of its kind.
CUresult set_params(CUgraphNode node, const CUgraphNodeParams& params);
CUresult set_params(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params);

// Gives `take(params)` the parameters of a node of this kind. `out`: where they go, checked for null.
template <class F>
CUresult get_params(CUgraphNode handle, CUgraphNodeType type, const void* out, F&& take) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || node->body.type != type || !out) return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params;
    params_of(*node, &params);
    take(params);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
