// Executable graphs that take on other parameters: see graph_exec.hpp.
#include <algorithm>

#include "graph/graph_exec.hpp"
#include "graph/graph_params.hpp"

namespace cudacpu {

namespace {

constexpr uint32_t nobody = UINT32_MAX;

struct Mismatch {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  uint32_t node = nobody, from = nobody;  // of the new plan
};

// The nodes of one level of a plan, from `first` up to `end`, and those that no other comes after.
struct Level {
  Level(const Plan& plan, uint32_t first, uint32_t end) {
    std::vector<uint32_t> all;
    std::unordered_set<uint32_t> before;
    for (uint32_t at = first; at < end; at = (plan.nodes[at].end ? plan.nodes[at].end : at) + 1) {
      all.push_back(at);
      before.insert(plan.nodes[at].after.begin(), plan.nodes[at].after.end());
    }
    count = all.size();
    for (uint32_t at : all)
      if (!before.count(at)) exits.push_back(at);
  }
  size_t count;
  std::vector<uint32_t> exits;
};

// Finds which node of the old plan each of the new is: from the nodes that end the graph back, by the order of edges.
class Pairing {
 public:
  Pairing(const Plan& old, const Plan& now) : old_(old), now_(now), mate_(now.nodes.size(), nobody) {
    taken_.resize(old.nodes.size());
  }

  bool levels(uint32_t old_first, uint32_t old_end, uint32_t first, uint32_t end) {
    Level was(old_, old_first, old_end), is(now_, first, end);
    if (was.count != is.count) return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nobody, nobody);
    if (was.exits.size() != is.exits.size())
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, is.exits.empty() ? nobody : is.exits.back(), nobody);
    struct Pair {
      uint32_t old, now, after;  // `after`: the node whose dependency it is
    };
    std::vector<Pair> open;
    for (size_t i = 0; i < was.exits.size(); ++i) open.push_back({was.exits[i], is.exits[i], nobody});
    std::reverse(open.begin(), open.end());
    while (!open.empty()) {
      Pair pair = open.back();
      open.pop_back();
      if (mate_[pair.now] == pair.old) continue;
      if (mate_[pair.now] != nobody || taken_[pair.old])
        return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, pair.after == nobody ? pair.now : pair.after,
                    pair.after == nobody ? nobody : pair.now);
      const PlanNode &before = old_.nodes[pair.old], &after = now_.nodes[pair.now];
      if (before.body.type != after.body.type)
        return fail(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, pair.now, nobody);
      if (before.after.size() != after.after.size())
        return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, pair.now, nobody);
      if (CUgraphExecUpdateResult why = update_refused(before.body, after.body)) return fail(why, pair.now, nobody);
      mate_[pair.now] = pair.old;
      taken_[pair.old] = true;
      for (size_t i = before.after.size(); i-- > 0;) open.push_back({before.after[i], after.after[i], pair.now});
      if (before.end && !levels(pair.old + 1, before.end, pair.now + 1, after.end)) return false;
    }
    return true;
  }

  // Gives the nodes of the old plan, in `target`, what those of the new do.
  void apply(Plan& target) const {
    for (uint32_t at = 0; at < mate_.size(); ++at)
      if (mate_[at] != nobody) target.nodes[mate_[at]].body = now_.nodes[at].body;
  }

  Mismatch mismatch;

 private:
  bool fail(CUgraphExecUpdateResult result, uint32_t node, uint32_t from) {
    mismatch = {result, node, from};
    return false;
  }

  const Plan &old_, &now_;
  std::vector<uint32_t> mate_;
  std::vector<bool> taken_;
};

// The handle of a node of a plan that was just made of a graph: it lies at the same place there.
CUgraphNode handle_at(const Graph& graph, const Plan& plan, uint32_t at) {
  if (at == nobody) return nullptr;
  for (auto& node : graph.nodes) {
    if (node->serial == plan.nodes[at].serial) return node->handle;
    CUgraphNode inner = node->child ? handle_at(*node->child, plan, at) : nullptr;
    if (inner) return inner;
  }
  return nullptr;
}

}  // namespace

HCQ_API cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph source, CUgraphExecUpdateResultInfo* out) {
  std::shared_ptr<Plan> dropped;  // goes when the lock is given back
  std::shared_ptr<const UserReferences> objects;
  return with_graphs([&]() -> CUresult {
    if (out) *out = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    auto exec = find_exec(handle);
    Graph* graph = find_graph(source);
    if (!exec || !graph || graph->owner || graph->captures) return CUDA_ERROR_INVALID_VALUE;
    GraphNode* wrong;
    auto now = make_plan(*graph, &wrong);
    if (!now) return CUDA_ERROR_INVALID_VALUE;
    Pairing pairing(*exec->plan, *now);
    auto all = [](const Plan& plan) { return static_cast<uint32_t>(plan.nodes.size()); };
    if (!pairing.levels(0, all(*exec->plan), 0, all(*now))) {
      const Mismatch& why = pairing.mismatch;
      if (out) *out = {why.result, handle_at(*graph, *now, why.node), handle_at(*graph, *now, why.from)};
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    auto changed = std::make_shared<Plan>(*exec->plan);
    pairing.apply(*changed);
    dropped = std::move(exec->plan);
    exec->plan = std::move(changed);
    objects = std::move(exec->objects);
    exec->objects = std::make_shared<const UserReferences>(graph->objects);
    if (out) out->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* node, CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  CUresult done = cuGraphExecUpdate_v2(exec, graph, &info);
  if (node) *node = info.errorNode;
  if (result) *result = info.result;
  return done;
}

HCQ_API cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode which, CUgraph source) {
  std::shared_ptr<Plan> dropped;  // goes when the lock is given back
  return with_graphs([&]() -> CUresult {
    auto exec = find_exec(handle);
    GraphNode* node = find_node(which);
    Graph* graph = find_graph(source);
    if (!exec || !node || !graph || graph->captures || node->body.type != CU_GRAPH_NODE_TYPE_GRAPH)
      return CUDA_ERROR_INVALID_VALUE;
    auto found = exec->plan->by_serial.find(node->serial);
    GraphNode* wrong;
    auto now = make_plan(*graph, &wrong);
    if (!now || found == exec->plan->by_serial.end()) return CUDA_ERROR_INVALID_VALUE;
    Pairing pairing(*exec->plan, *now);
    const PlanNode& child = exec->plan->nodes[found->second];
    if (!pairing.levels(found->second + 1, child.end, 0, static_cast<uint32_t>(now->nodes.size())))
      return CUDA_ERROR_INVALID_VALUE;
    auto changed = std::make_shared<Plan>(*exec->plan);
    pairing.apply(*changed);
    dropped = std::move(exec->plan);
    exec->plan = std::move(changed);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
