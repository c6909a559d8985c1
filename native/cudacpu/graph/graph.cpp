// Graphs and their nodes: see graph.hpp.
#include "graph/graph.hpp"

#include <algorithm>
#include <atomic>
#include <climits>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph_memory.hpp"

namespace cudacpu {

namespace {

std::atomic<uint32_t> next_graph{1};
uint64_t next_serial = 1;  // guarded by graph_mutex()

bool is_memory(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

void mark_memory(Graph* graph) {
  for (; graph; graph = graph->owner ? graph->owner->graph : nullptr) graph->has_memory = true;
}

}  // namespace

Graph::Graph() : id(next_graph.fetch_add(1, std::memory_order_relaxed)) {  // no more than unique
  // The handle owns nothing: graphs belong to who made them, to a node or to a capture.
  handle = static_cast<CUgraph>(handles<Graph>().add(std::shared_ptr<Graph>(std::shared_ptr<void>(), this)));
}

Graph::~Graph() { retire(); }

void Graph::retire() {
  if (handle) handles<Graph>().remove(handle);
  handle = nullptr;
  for (auto& node : nodes) {
    if (node->handle) handles<GraphNode>().remove(node->handle);
    node->handle = nullptr;
    if (node->child) node->child->retire();
  }
}

std::mutex& graph_mutex() {
  static auto* one = new std::mutex();  // threads of the library may run until the process is gone
  return *one;
}

Graph* find_graph(CUgraph handle) { return handles<Graph>().find(handle); }
GraphNode* find_node(CUgraphNode handle) { return handles<GraphNode>().find(handle); }

bool plain(const CUgraphEdgeData& data) { return !data.from_port && !data.to_port && !data.type; }

bool valid_edge(const GraphNode& from, const CUgraphEdgeData& data) {
  if (plain(data)) return true;  // other ports are for kernels that let the next one begin early
  return from.body.type == CU_GRAPH_NODE_TYPE_KERNEL && data.from_port <= 2 && data.to_port == 0 && data.type <= 1;
}

CUresult edges_of(const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count, std::vector<Edge>* out) {
  if (count && !nodes) return CUDA_ERROR_INVALID_VALUE;
  out->clear();
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = find_node(nodes[i]);
    if (!node || (data && !valid_edge(*node, data[i]))) return CUDA_ERROR_INVALID_VALUE;
    out->push_back({node, data ? data[i] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

bool remove_edge(std::vector<Edge>& edges, const GraphNode* node) {
  auto found = std::find_if(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.node == node; });
  if (found == edges.end()) return false;
  edges.erase(found);
  return true;
}

CUresult add_node(Graph& graph, NodeBody body, const std::vector<Edge>& dependencies, GraphNode** out) {
  std::unordered_set<const GraphNode*> seen;
  for (const Edge& edge : dependencies)
    if (edge.node->graph != &graph || !seen.insert(edge.node).second) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_memory(graph, body.work.get());
  if (result) return result;
  auto node = std::make_shared<GraphNode>();
  node->graph = &graph;
  node->serial = next_serial++;
  node->id = graph.next_node++;
  node->body = std::move(body);
  node->dependencies = dependencies;
  node->handle = static_cast<CUgraphNode>(handles<GraphNode>().add(node));
  for (const Edge& edge : dependencies) edge.node->dependents.push_back({node.get(), edge.data});
  if (is_memory(node->body.type)) mark_memory(&graph);
  *out = node.get();
  graph.nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

void set_child(GraphNode& node, std::unique_ptr<Graph> child) {
  child->owner = &node;
  if (child->has_memory) mark_memory(node.graph);
  node.child = std::move(child);
}

std::unique_ptr<Graph> copy_graph(const Graph& graph) {
  auto copy = std::make_unique<Graph>();
  copy->objects.include(graph.objects);
  std::unordered_map<const GraphNode*, GraphNode*> copies;
  for (auto& node : graph.nodes) {
    GraphNode* made;
    add_node(*copy, node->body, {}, &made);
    made->origin = node->serial;
    if (node->child) set_child(*made, copy_graph(*node->child));
    copies[node.get()] = made;
  }
  for (auto& node : graph.nodes) {  // each list in its own order
    GraphNode* made = copies[node.get()];
    for (const Edge& edge : node->dependencies) made->dependencies.push_back({copies[edge.node], edge.data});
    for (const Edge& edge : node->dependents) made->dependents.push_back({copies[edge.node], edge.data});
  }
  return copy;
}

std::vector<const GraphNode*> ancestors(const std::vector<Edge>& nodes) {
  std::vector<const GraphNode*> found;
  std::unordered_set<const GraphNode*> seen;
  for (const Edge& edge : nodes)
    if (seen.insert(edge.node).second) found.push_back(edge.node);
  for (size_t i = 0; i < found.size(); ++i)
    for (const Edge& edge : found[i]->dependencies)
      if (seen.insert(edge.node).second) found.push_back(edge.node);
  return found;
}

CUgraph publish(std::unique_ptr<Graph> graph) { return graph.release()->handle; }

HCQ_API cuGraphCreate(CUgraph* out, unsigned flags) {
  return with_graphs([&]() -> CUresult {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    *out = publish(std::make_unique<Graph>());
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphDestroy(CUgraph handle) {
  std::unique_ptr<Graph> dropped;  // goes when the lock is given back
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph || graph->owner || graph->captures) return CUDA_ERROR_INVALID_VALUE;
    graph->retire();
    dropped.reset(graph);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphClone(CUgraph* out, CUgraph handle) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
    if (graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
    *out = publish(copy_graph(*graph));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(clone);
    GraphNode* node = find_node(original);
    if (!out || !graph || !node) return CUDA_ERROR_INVALID_VALUE;
    for (auto& each : graph->nodes) {
      if (each->origin != node->serial) continue;
      *out = each->handle;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuGraphGetId(CUgraph handle, unsigned* out) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = graph->id;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphDestroyNode(CUgraphNode handle) {
  std::shared_ptr<GraphNode> dropped;  // goes when the lock is given back
  return with_graphs([&]() -> CUresult {
    GraphNode* node = find_node(handle);
    if (!node || node->graph->has_memory || node->graph->captures) return CUDA_ERROR_INVALID_VALUE;
    for (const Edge& edge : node->dependencies) remove_edge(edge.node->dependents, node);
    for (const Edge& edge : node->dependents) remove_edge(edge.node->dependencies, node);
    if (node->child) node->child->retire();
    dropped = handles<GraphNode>().remove(handle);
    dropped->handle = nullptr;
    auto& nodes = node->graph->nodes;
    for (auto each = nodes.begin(); each != nodes.end(); ++each) {
      if (each->get() != node) continue;
      nodes.erase(each);
      break;
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    auto found = handles<UserObject>().share(object);
    if (!graph || !found || !count || count > INT_MAX || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}))
      return CUDA_ERROR_INVALID_VALUE;
    graph->objects.add(found, count, flags & CU_GRAPH_USER_OBJECT_MOVE);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    auto found = handles<UserObject>().share(object);
    if (!graph || !found || !count || !graph->objects.remove(found, count)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
