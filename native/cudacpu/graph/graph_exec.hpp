// Executable graphs. What does not live here: what they run (graph_plan.hpp), what is captured (capture.hpp).
#pragma once
#include <atomic>

#include "graph/graph_plan.hpp"

namespace cudacpu {

struct GraphExec {
  CUgraphExec handle = nullptr;
  uint32_t id = 0;
  uint64_t flags = 0;
  std::shared_ptr<Plan> plan;  // shared with the runs in flight: copied before it changes
  std::shared_ptr<const UserReferences> objects;
  std::shared_ptr<std::atomic<bool>> previous;  // whether the last launch ended; null: there was none
  std::shared_ptr<void> sole;  // set where the graph it was made of has memory nodes: no other may be made of it
};

// Null for what is no handle. graph_mutex() is held, here and below.
std::shared_ptr<GraphExec> find_exec(CUgraphExec handle);
// The node of the plan that is to change, in a plan that no run looks at; null for a node that it wasn't made of.
PlanNode* change(GraphExec& exec, const GraphNode& node);

}  // namespace cudacpu
