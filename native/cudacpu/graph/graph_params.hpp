// What nodes do, from and to the API's structures. What does not live here: the entries (graph_nodes.cpp,
// graph_exec_nodes.cpp).
#pragma once
#include "api/api_launch.hpp"
#include "graph/graph.hpp"

namespace cudacpu {

// The body for parameters of any kind but child graphs and allocations, checked as the calls of streams check them.
// CUDA_ERROR_NOT_SUPPORTED, with a line in the log, for kinds that there are not. `before` is what the node does now,
// if there is one: a kernel keeps its attributes.
CUresult make_body(const CUgraphNodeParams& params, const Node* before, NodeBody* out);
// The work of a node, to be looked at without the lock; null for no handle.
NodePtr work_of(CUgraphNode handle);
// The parameters of a node. Arrays in them are the node's.
void params_of(const GraphNode& node, CUgraphNodeParams* out);

// Why a node of an executable graph can't do `after` in place of `before`, which is of the same kind.
CUgraphExecUpdateResult update_refused(const NodeBody& before, const NodeBody& after);

// As the older calls give and take them.
CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS& params);
CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1& params);
CUgraphNodeParams memcpy_params(const CUDA_MEMCPY3D& params, CUcontext context);
CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context);
CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS& params);
CUgraphNodeParams event_params(CUgraphNodeType type, CUevent event);
CUgraphNodeParams batch_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params);

}  // namespace cudacpu
