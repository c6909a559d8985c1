// The API's entries that set parameters of an executable graph's nodes. What does not live here: updates of the whole
// (graph_update.cpp).
#include "graph/graph_entry.hpp"
#include "graph/graph_exec.hpp"

namespace cudacpu {

CUresult set_params(CUgraphExec handle, CUgraphNode which, const CUgraphNodeParams& params) {
  NodeBody body;  // becomes the old one, and goes when the lock is given back
  return with_init([&]() -> CUresult {
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      return CUDA_ERROR_NOT_SUPPORTED;  // these can't change
    NodePtr before = work_of(which);
    CUresult result = make_body(params, before.get(), &body);
    if (result) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    auto exec = find_exec(handle);
    GraphNode* node = find_node(which);
    if (!exec || !node || node->body.type != params.type) return CUDA_ERROR_INVALID_VALUE;
    PlanNode* target = change(*exec, *node);
    if (!target || update_refused(target->body, body)) return CUDA_ERROR_INVALID_VALUE;
    std::swap(target->body.work, body.work);  // the context stays
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph source);  // graph_update.cpp

HCQ_API cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
  return set_params(exec, node, *params);
}

HCQ_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return params ? set_params(exec, node, kernel_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return params ? set_params(exec, node, kernel_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params,
                                       CUcontext context) {
  return params ? set_params(exec, node, memcpy_params(*params, context)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params,
                                       CUcontext context) {
  return params ? set_params(exec, node, memset_params(*params, context)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return params ? set_params(exec, node, host_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_params(exec, node, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

HCQ_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_params(exec, node, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

HCQ_API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return params ? set_params(exec, node, batch_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cudacpu
