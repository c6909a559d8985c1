// The API's entries that add nodes to graphs, ask for their parameters and set them. What does not live here: what
// parameters mean (graph_params.cpp), kernels (graph_kernels.cpp), executable graphs (graph_exec_nodes.cpp).
#include "api/log.hpp"
#include "graph/graph_entry.hpp"
#include "graph/graph_memory.hpp"

namespace cudacpu {

namespace {

CUresult add_child(Graph& graph, const CUDA_CHILD_GRAPH_NODE_PARAMS& params, const std::vector<Edge>& after,
                   GraphNode** added) {
  Graph* child = find_graph(params.graph);
  bool move = params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (!child || child == &graph || (move && (child->owner || child->captures))) return CUDA_ERROR_INVALID_VALUE;
  if (params.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE && !move) return CUDA_ERROR_INVALID_VALUE;
  if (!move && child->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
  for (Graph* outer = &graph; outer->owner; outer = outer->owner->graph)
    if (outer->owner->graph == child) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = add_node(graph, {CU_GRAPH_NODE_TYPE_GRAPH, nullptr, nullptr}, after, added);
  if (!result) set_child(**added, move ? std::unique_ptr<Graph>(child) : copy_graph(*child));
  return result;
}

}  // namespace

CUresult add_with_params(CUgraphNode* out, CUgraph handle, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                         size_t count, CUgraphNodeParams params, CUdeviceptr* address) {
  NodeBody body;  // outlives the lock, should it not be wanted
  return with_init([&]() -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    body.type = params.type;
    CUresult result = CUDA_SUCCESS;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      result = make_alloc(params.alloc, &body.work);
    } else if (params.type != CU_GRAPH_NODE_TYPE_GRAPH && params.type != CU_GRAPH_NODE_TYPE_MEM_FREE) {
      result = make_body(params, nullptr, &body);
    }
    if (result) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    Graph* graph = find_graph(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Edge> after;
    GraphNode* added;
    result = edges_of(nodes, data, count, &after);
    if (!result && params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) result = make_free(params.free.dptr, &body.work);
    if (result) return result;
    result = params.type == CU_GRAPH_NODE_TYPE_GRAPH ? add_child(*graph, params.graph, after, &added)
                                                     : add_node(*graph, body, after, &added);
    if (result) return result;
    *out = added->handle;
    if (address) *address = params.alloc.dptr;
    return CUDA_SUCCESS;
  });
}

CUresult set_params(CUgraphNode handle, const CUgraphNodeParams& params) {
  NodeBody body;  // becomes the old one, and goes when the lock is given back
  return with_init([&]() -> CUresult {
    if (params.type == CU_GRAPH_NODE_TYPE_GRAPH || params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      return CUDA_ERROR_NOT_SUPPORTED;  // these can't change
    NodePtr before = work_of(handle);
    CUresult result = make_body(params, before.get(), &body);
    if (result) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    GraphNode* node = find_node(handle);
    if (!node || node->body.type != params.type) return CUDA_ERROR_INVALID_VALUE;
    std::swap(node->body.work, body.work);  // the context stays
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                          size_t count, CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr* address = params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? &params->alloc.dptr : nullptr;
  return add_with_params(out, graph, nodes, data, count, *params, address);
}

HCQ_API cuGraphAddNode_v3(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                          size_t count, CUgraphNodeParams* params) {
  return cuGraphAddNode_v2(out, graph, nodes, data, count, params);
}

HCQ_API cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                       CUgraphNodeParams* params) {
  return cuGraphAddNode_v2(out, graph, nodes, nullptr, count, params);
}

HCQ_API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return params ? set_params(node, *params) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* params) {
  return cuGraphNodeSetParams(node, params);
}

HCQ_API cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* out) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    params_of(*node, out);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return add_with_params(out, graph, nodes, nullptr, count, params);
}

HCQ_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                             const CUDA_MEMCPY3D* params, CUcontext context) {
  return params ? add_with_params(out, graph, nodes, nullptr, count, memcpy_params(*params, context))
                : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_MEMCPY, out, [&](auto& params) { *out = params.memcpy.copyParams; });
}

HCQ_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return params ? set_params(node, memcpy_params(*params, nullptr)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                             const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  return params ? add_with_params(out, graph, nodes, nullptr, count, memset_params(*params, context))
                : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_MEMSET, out, [&](auto& params) { *out = params.memset; });
}

HCQ_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  return params ? set_params(node, memset_params(*params, nullptr)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                           const CUDA_HOST_NODE_PARAMS* params) {
  return params ? add_with_params(out, graph, nodes, nullptr, count, host_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_HOST, out, [&](auto& params) { *out = params.host; });
}

HCQ_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  return params ? set_params(node, host_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                                 CUgraph child) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
  return add_with_params(out, graph, nodes, nullptr, count, params);
}

HCQ_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_GRAPH, out, [&](auto& params) { *out = params.graph.graph; });
}

HCQ_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                                  CUevent event) {
  return add_with_params(out, graph, nodes, nullptr, count, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

HCQ_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out, [&](auto& params) { *out = params.eventRecord.event; });
}

HCQ_API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_params(node, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
}

HCQ_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                                CUevent event) {
  return add_with_params(out, graph, nodes, nullptr, count, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

HCQ_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out, [&](auto& params) { *out = params.eventWait.event; });
}

HCQ_API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return set_params(node, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
}

HCQ_API cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return params ? add_with_params(out, graph, nodes, nullptr, count, batch_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, out, [&](auto& params) { *out = params.memOp; });
}

HCQ_API cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return params ? set_params(node, batch_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

// A conditional node's value is set by kernels, through a library of the device runtime that is not run here.
HCQ_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle*, CUgraph, CUcontext, unsigned, unsigned) {
  return with_init([&]() -> CUresult {
    log_line(CU_LOG_LEVEL_ERROR, "CUDA on the CPU has no conditional nodes in graphs");
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // namespace cudacpu
