// What an executable graph does, flat and ready to run. What does not live here: calls on executables (graph_exec.cpp).
#pragma once
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph.hpp"
#include "stream/event.hpp"

namespace cudacpu {

// A child graph is laid out as its own node, then its nodes, then one more that comes after all of them.
struct PlanNode {
  uint64_t serial;  // of the graph's node; 0 for the end of a child graph
  NodeBody body;
  bool enabled = true;
  uint32_t waits = 0;                 // nodes that it waits for
  std::vector<uint32_t> next;         // nodes that wait for it
  std::vector<uint32_t> after;        // its dependencies in the order of the graph; of child graphs their first node
  std::vector<CUgraphEdgeData> data;  // of these
  uint32_t end = 0;                   // of child graphs: the node that ends it
};

struct Plan {
  std::vector<PlanNode> nodes;
  std::unordered_map<uint64_t, uint32_t> by_serial;
  std::vector<uint32_t> events;  // nodes that record events or wait for them, each after those it comes after
};

// Lays a graph out; null and the node where it can't be: a cycle. graph_mutex() is held.
std::shared_ptr<Plan> make_plan(const Graph& graph, GraphNode** wrong);
// The graph that a plan does, as a new graph: for the capture of a launch.
std::unique_ptr<Graph> graph_of(const Plan& plan);

// One run of a plan.
class Run {
 public:
  // Settles what events are recorded and awaited: what was recorded last in the order of calls.
  explicit Run(std::shared_ptr<const Plan> plan);
  // Has the events it records know of it: the run is the `position`th node of the stream.
  void note(const std::shared_ptr<Stream>& stream, uint64_t position);
  // Runs what can run: CUDA_SUCCESS once all is done, `again` while all that is left waits, or an error.
  CUresult step(Context& context);
  // Lets go of those who wait for nodes that will not run.
  void skip(Context& context, CUresult cause);

 private:
  void done(uint32_t at);
  CUresult run(const PlanNode& node, uint32_t at, Context& context);

  std::shared_ptr<const Plan> plan_;
  std::vector<uint32_t> waits_;
  std::vector<uint32_t> ready_;
  std::vector<bool> ended_;
  std::unordered_map<uint32_t, uint32_t> operations_;  // how far the memory operations of a node are
  std::unordered_map<uint32_t, NodePtr> marks_;        // what nodes of events do in this run
  std::vector<std::pair<std::shared_ptr<Event>, CompletionPtr>> records_;
  size_t left_;
};

}  // namespace cudacpu
