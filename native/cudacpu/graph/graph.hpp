// Graphs as their owners change them: nodes and edges. What does not live here: what a node does (node.hpp), what is
// launched (graph_exec.hpp), how a stream's calls become nodes (capture.hpp).
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "api/api_graph.hpp"
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "graph/user_object.hpp"
#include "stream/node.hpp"

namespace cudacpu {

struct GraphNode;

struct Edge {
  GraphNode* node;  // the other end
  CUgraphEdgeData data;
};

// What kind of thing a graph's node is, and what it does.
struct NodeBody {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  NodePtr work;                 // none in empty nodes and child graphs
  CUcontext context = nullptr;  // where it does it; null: in that of the stream it is launched into
};

struct GraphNode {
  struct Graph* graph;
  CUgraphNode handle;
  uint64_t serial;      // never given twice
  uint64_t origin = 0;  // serial of the node that it was cloned from
  uint32_t id;          // within the graph
  NodeBody body;
  std::unique_ptr<Graph> child;  // of child graphs
  std::vector<Edge> dependencies, dependents;
};

struct Graph {
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Ends the handles, of all in it too. What destroys a graph does so under graph_mutex(), and the rest without it:
  // nodes own modules, and these call the compiler when they go.
  void retire();

  CUgraph handle;
  uint32_t id;
  uint32_t next_node = 0;
  GraphNode* owner = nullptr;                     // of a child graph: the node that it belongs to
  std::vector<std::shared_ptr<GraphNode>> nodes;  // in the order in which they came
  UserReferences objects;
  uint32_t captures = 0;    // captures that add to it now
  bool has_memory = false;  // nodes that allocate or free
  // Held by the one executable that may be made of a graph with memory nodes at a time; it may outlive the graph.
  std::weak_ptr<void> executable;
};

// Guards graphs, their nodes, executables and captures. No code of users, and no node, runs under it.
std::mutex& graph_mutex();

// Calls `body() -> CUresult` with graph_mutex() held.
template <class F>
CUresult with_graphs(F&& body) {
  return with_init([&]() -> CUresult {
    std::lock_guard<std::mutex> hold(graph_mutex());
    return body();
  });
}

// What handles mean; null for what is none. graph_mutex() is held, here and below.
Graph* find_graph(CUgraph handle);
GraphNode* find_node(CUgraphNode handle);

// Takes the edge to or from `node` out of a list; false: there is none.
bool remove_edge(std::vector<Edge>& edges, const GraphNode* node);
// Adds a node after `dependencies`: nodes of the same graph, each once, else CUDA_ERROR_INVALID_VALUE.
CUresult add_node(Graph& graph, NodeBody body, const std::vector<Edge>& dependencies, GraphNode** out);
// Puts a copy of `child` into a node just added.
void set_child(GraphNode& node, std::unique_ptr<Graph> child);
// A copy; its nodes remember which they are copies of.
std::unique_ptr<Graph> copy_graph(const Graph& graph);
// What must hold of the data of an edge from a node.
bool valid_edge(const GraphNode& from, const CUgraphEdgeData& data);
// Nodes and data of edges as calls give them; `data` may be null.
CUresult edges_of(const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count, std::vector<Edge>* out);
bool plain(const CUgraphEdgeData& data);  // an edge that says no more than "after"
// These nodes and all before them.
std::vector<const GraphNode*> ancestors(const std::vector<Edge>& nodes);

// Makes a handle for a graph of its own.
CUgraph publish(std::unique_ptr<Graph> graph);

}  // namespace cudacpu
