// What graphs say of their nodes and edges, and edges that come and go. What does not live here: nodes (graph.cpp).
#include <algorithm>

#include "graph/graph.hpp"

namespace cudacpu {

namespace {

// Lists are asked for in two ways: without arrays for their length, with arrays for so many entries; what is left of
// the arrays then becomes null. `put(i, at)` writes entry `at`, null for an `i` that is SIZE_MAX.
template <class Put>
CUresult list(size_t* count, size_t available, bool wanted, Put&& put) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; wanted && at < *count; ++at) put(at < available ? at : SIZE_MAX, at);
  if (!wanted || *count > available) *count = available;
  return CUDA_SUCCESS;
}

// The ends and the data of a node's edges.
CUresult list_edges(const std::vector<Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  if (data && !nodes) return CUDA_ERROR_INVALID_VALUE;
  bool lossy = std::any_of(edges.begin(), edges.end(), [](const Edge& edge) { return !plain(edge.data); });
  if (lossy && nodes && !data) return CUDA_ERROR_LOSSY_QUERY;
  return list(count, edges.size(), nodes, [&](size_t i, size_t at) {
    nodes[at] = i == SIZE_MAX ? nullptr : edges[i].node->handle;
    if (data) data[at] = i == SIZE_MAX ? CUgraphEdgeData{} : edges[i].data;
  });
}

CUresult list_nodes(const std::vector<GraphNode*>& found, CUgraphNode* nodes, size_t* count) {
  return list(count, found.size(), nodes,
              [&](size_t i, size_t at) { nodes[at] = i == SIZE_MAX ? nullptr : found[i]->handle; });
}

bool has_edge(const std::vector<Edge>& edges, const GraphNode* node) {
  return std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.node == node; });
}

// The ends of edges as calls give them, both in the graph.
CUresult ends(CUgraph graph, CUgraphNode from, CUgraphNode to, GraphNode** source, GraphNode** target) {
  *source = find_node(from);
  *target = find_node(to);
  if (!*source || !*target || *source == *target) return CUDA_ERROR_INVALID_VALUE;
  if ((*source)->graph->handle != graph || (*target)->graph->handle != graph) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace

HCQ_API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphNode*> found;
    for (auto& node : graph->nodes) found.push_back(node.get());
    return list_nodes(found, nodes, count);
  });
}

HCQ_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    std::vector<GraphNode*> found;
    for (auto& node : graph->nodes)
      if (node->dependencies.empty()) found.push_back(node.get());
    return list_nodes(found, nodes, count);
  });
}

HCQ_API cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph || !from != !to || (data && !from)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::pair<GraphNode*, Edge>> found;
    for (auto& node : graph->nodes) {
      for (const Edge& edge : node->dependents) {
        if (from && !data && !plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
        found.emplace_back(node.get(), edge);
      }
    }
    return list(count, found.size(), from, [&](size_t i, size_t at) {
      from[at] = i == SIZE_MAX ? nullptr : found[i].first->handle;
      to[at] = i == SIZE_MAX ? nullptr : found[i].second.node->handle;
      if (data) data[at] = i == SIZE_MAX ? CUgraphEdgeData{} : found[i].second.data;
    });
  });
}

HCQ_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}

HCQ_API cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    return node ? list_edges(node->dependencies, nodes, data, count) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}

HCQ_API cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    return node ? list_edges(node->dependents, nodes, data, count) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}

// A cycle is told of by instantiation, as the API has it.
HCQ_API cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                  const CUgraphEdgeData* data, size_t count) {
  return with_graphs([&]() -> CUresult {
    if (!find_graph(handle) || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
    GraphNode *source, *target;
    for (size_t i = 0; i < count; ++i) {  // all or nothing
      CUresult result = ends(handle, from[i], to[i], &source, &target);
      if (result) return result;
      if (has_edge(source->dependents, target) || (data && !valid_edge(*source, data[i])))
        return CUDA_ERROR_INVALID_VALUE;
      for (size_t j = 0; j < i; ++j)
        if (from[j] == from[i] && to[j] == to[i]) return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
      ends(handle, from[i], to[i], &source, &target);
      CUgraphEdgeData with = data ? data[i] : CUgraphEdgeData{};
      target->dependencies.push_back({source, with});
      source->dependents.push_back({target, with});
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

HCQ_API cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                     const CUgraphEdgeData* data, size_t count) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph || graph->has_memory || (count && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
    GraphNode *source, *target;
    for (size_t i = 0; i < count; ++i) {  // all or nothing
      CUresult result = ends(handle, from[i], to[i], &source, &target);
      if (result) return result;
      auto found = std::find_if(source->dependents.begin(), source->dependents.end(),
                                [&](const Edge& edge) { return edge.node == target; });
      CUgraphEdgeData with = data ? data[i] : CUgraphEdgeData{};
      if (found == source->dependents.end() || found->data.from_port != with.from_port ||
          found->data.to_port != with.to_port || found->data.type != with.type)
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
      ends(handle, from[i], to[i], &source, &target);
      remove_edge(source->dependents, target);
      remove_edge(target->dependencies, source);
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}

HCQ_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* out) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = node->body.type;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* out) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = node->graph->handle;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeGetLocalId(CUgraphNode handle, unsigned* out) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = node->id;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* out) {
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = (static_cast<uint64_t>(node->graph->id) << 32) | node->id;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
