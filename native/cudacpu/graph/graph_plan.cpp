// Graphs laid out to run, and their runs: see graph_plan.hpp.
#include "graph/graph_plan.hpp"

#include "stream/stream_memory.hpp"

namespace cudacpu {

namespace {

void link(Plan& plan, uint32_t from, uint32_t to) {
  plan.nodes[from].next.push_back(to);
  ++plan.nodes[to].waits;
}

// The last node of what stands at `at`: its own, or the end of the child graph.
uint32_t last(const Plan& plan, uint32_t at) { return plan.nodes[at].end ? plan.nodes[at].end : at; }

void lay_out(Plan& plan, const Graph& graph) {
  std::unordered_map<const GraphNode*, uint32_t> index;
  for (auto& node : graph.nodes) {
    auto at = static_cast<uint32_t>(plan.nodes.size());
    index[node.get()] = at;
    plan.by_serial[node->serial] = at;
    plan.nodes.push_back({node->serial, node->body, true, 0, {}, {}, {}, 0});
    if (!node->child) continue;
    lay_out(plan, *node->child);
    auto end = static_cast<uint32_t>(plan.nodes.size());
    plan.nodes.push_back({0, NodeBody{}, true, 0, {}, {}, {}, 0});
    plan.nodes[at].end = end;
    for (uint32_t inner = at + 1; inner < end; inner = last(plan, inner) + 1) {
      if (plan.nodes[inner].after.empty()) link(plan, at, inner);
      if (plan.nodes[last(plan, inner)].next.empty()) link(plan, last(plan, inner), end);
    }
    if (!plan.nodes[end].waits) link(plan, at, end);
  }
  for (auto& node : graph.nodes) {
    for (const Edge& edge : node->dependencies) {
      plan.nodes[index[node.get()]].after.push_back(index[edge.node]);
      plan.nodes[index[node.get()]].data.push_back(edge.data);
      link(plan, last(plan, index[edge.node]), index[node.get()]);
    }
  }
}

// The nodes of a plan from `first` up to `end`, as a graph.
std::unique_ptr<Graph> rebuild(const Plan& plan, uint32_t first, uint32_t end) {
  auto graph = std::make_unique<Graph>();
  std::unordered_map<uint32_t, GraphNode*> made;
  for (uint32_t at = first; at < end; at = last(plan, at) + 1) {
    const PlanNode& node = plan.nodes[at];
    add_node(*graph, node.enabled ? node.body : NodeBody{}, {}, &made[at]);
    if (node.end) set_child(*made[at], rebuild(plan, at + 1, node.end));
  }
  for (auto& [at, node] : made) {
    for (size_t i = 0; i < plan.nodes[at].after.size(); ++i) {
      GraphNode* from = made[plan.nodes[at].after[i]];
      node->dependencies.push_back({from, plan.nodes[at].data[i]});
      from->dependents.push_back({node, plan.nodes[at].data[i]});
    }
  }
  return graph;
}

// A node of a cycle of the graph or of a child, or null.
GraphNode* find_cycle(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> waits;
  std::vector<const GraphNode*> ready;
  for (auto& node : graph.nodes) {
    if (node->child) {
      if (GraphNode* found = find_cycle(*node->child)) return found;
    }
    waits[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node.get());
  }
  for (size_t i = 0; i < ready.size(); ++i)
    for (const Edge& edge : ready[i]->dependents)
      if (!--waits[edge.node]) ready.push_back(edge.node);
  for (auto& node : graph.nodes)
    if (waits[node.get()]) return node.get();
  return nullptr;
}

bool of_event(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

std::vector<uint32_t> find_events(const Plan& plan) {
  std::vector<uint32_t> waits, order, found;
  for (uint32_t at = 0; at < plan.nodes.size(); ++at) {
    waits.push_back(plan.nodes[at].waits);
    if (!waits[at]) order.push_back(at);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (of_event(plan.nodes[order[i]].body.type)) found.push_back(order[i]);
    for (uint32_t next : plan.nodes[order[i]].next)
      if (!--waits[next]) order.push_back(next);
  }
  return found;
}

}  // namespace

std::shared_ptr<Plan> make_plan(const Graph& graph, GraphNode** wrong) {
  *wrong = find_cycle(graph);
  if (*wrong) return nullptr;
  auto plan = std::make_shared<Plan>();
  lay_out(*plan, graph);
  plan->events = find_events(*plan);
  return plan;
}

std::unique_ptr<Graph> graph_of(const Plan& plan) { return rebuild(plan, 0, static_cast<uint32_t>(plan.nodes.size())); }

Run::Run(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)), left_(plan_->nodes.size()) {
  waits_.reserve(left_);
  ended_.resize(left_);
  for (uint32_t i = 0; i < left_; ++i) {
    waits_.push_back(plan_->nodes[i].waits);
    if (!waits_.back()) ready_.push_back(i);
  }
  std::unordered_map<const Event*, CompletionPtr> here;
  for (uint32_t at : plan_->events) {
    const auto& node = static_cast<const EventNode&>(*plan_->nodes[at].body.work);
    CompletionPtr& last = here[node.event.get()];
    if (node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      last = std::make_shared<Completion>();
      records_.emplace_back(node.event, last);
      marks_[at] = make_record(last);
    } else {
      if (!last) last = node.event->last();
      if (last) marks_[at] = make_wait(last);
    }
  }
}

void Run::note(const std::shared_ptr<Stream>& stream, uint64_t position) {
  for (auto& [event, completion] : records_) event->note(completion, stream, position);
}

void Run::done(uint32_t node) {
  --left_;
  ended_[node] = true;
  for (uint32_t next : plan_->nodes[node].next)
    if (!--waits_[next]) ready_.push_back(next);
}

CUresult Run::run(const PlanNode& node, uint32_t at, Context& context) {
  if (of_event(node.body.type)) {
    auto mark = marks_.find(at);
    if (mark == marks_.end()) return CUDA_SUCCESS;  // it waits for an event that was never recorded
    CUresult result = mark->second->run(context);
    if (node.body.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) progress();
    return result;
  }
  if (node.body.type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) return node.body.work->run(context);
  return static_cast<const BatchMemOp&>(*node.body.work).step(&operations_[at]);
}

CUresult Run::step(Context& context) {
  bool moved = true;
  while (left_ && moved) {
    moved = false;
    std::vector<uint32_t> now;
    now.swap(ready_);
    for (size_t i = 0; i < now.size(); ++i) {
      const PlanNode& node = plan_->nodes[now[i]];
      CUresult result = CUDA_SUCCESS;
      if (node.enabled && node.body.work) {
        Context* own = node.body.context ? handles<Context>().find(node.body.context) : nullptr;
        result = run(node, now[i], own ? *own : context);
      }
      if (result == again) {
        ready_.push_back(now[i]);
      } else if (result) {
        ready_.insert(ready_.end(), now.begin() + i, now.end());
        return result;
      } else {
        done(now[i]);
        moved = true;
      }
    }
  }
  return left_ ? again : CUDA_SUCCESS;
}

void Run::skip(Context& context, CUresult cause) {
  for (uint32_t i = 0; i < plan_->nodes.size(); ++i) {
    if (ended_[i]) continue;
    ended_[i] = true;
    auto mark = marks_.find(i);
    if (mark != marks_.end()) {
      mark->second->skip(context, cause);
    } else if (plan_->nodes[i].body.work) {
      plan_->nodes[i].body.work->skip(context, cause);
    }
  }
  left_ = 0;
}

}  // namespace cudacpu
