// Executable graphs: made, launched, updated. See graph_exec.hpp.
#include "graph/graph_exec.hpp"

#include "device/lacks.hpp"
#include "graph/capture.hpp"
#include "graph/graph_memory.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

namespace {

std::atomic<uint32_t> next_exec{1};

// One launch. It waits for the launch before it, wherever that is queued.
struct GraphLaunch final : Node {
  GraphLaunch(const GraphExec& exec, std::shared_ptr<std::atomic<bool>> ended)
      : objects(exec.objects), previous(exec.previous), ended(std::move(ended)), run_(exec.plan) {}
  ~GraphLaunch() override { end(); }

  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }

  CUresult run(Context& context) const override {
    if (previous && !previous->load(std::memory_order_acquire)) return again;  // pairs with end()
    previous.reset();
    CUresult result = run_.step(context);
    if (result == again) return again;
    if (result) run_.skip(context, result);
    end();
    return result;
  }

  void skip(Context& context, CUresult cause) const override {
    run_.skip(context, cause);
    end();
  }

  void note(const std::shared_ptr<Stream>& stream, uint64_t position) const { run_.note(stream, position); }

 private:
  void end() const {
    if (!ended->exchange(true, std::memory_order_release)) progress();  // the next launch sees what this one wrote
  }

  std::shared_ptr<const UserReferences> objects;  // live as long as what may use them
  mutable std::shared_ptr<std::atomic<bool>> previous;
  std::shared_ptr<std::atomic<bool>> ended;
  mutable Run run_;
};

constexpr uint64_t known_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Instantiated {
  CUgraphNode node = nullptr;
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_ERROR;
};

CUresult instantiate(CUgraphExec* out, CUgraph handle, uint64_t flags, Instantiated* why) {
  return with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!out || !graph || graph->captures || graph->owner) return CUDA_ERROR_INVALID_VALUE;
    if (lacks(Lack::graphs)) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags & ~known_flags) {  // launches from kernels are among them
      why->result = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
      return flags & ~uint64_t{15} ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (graph->has_memory && !graph->executable.expired()) return CUDA_ERROR_INVALID_VALUE;
    GraphNode* wrong;
    auto exec = std::make_shared<GraphExec>();
    exec->plan = make_plan(*graph, &wrong);
    if (!exec->plan) {
      *why = {wrong->handle, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE};
      return CUDA_ERROR_INVALID_VALUE;
    }
    exec->id = next_exec.fetch_add(1, std::memory_order_relaxed);  // no more than unique
    exec->flags = flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    exec->objects = std::make_shared<const UserReferences>(graph->objects);
    if (graph->has_memory) graph->executable = exec->sole = std::make_shared<char>();
    *out = exec->handle = static_cast<CUgraphExec>(handles<GraphExec>().add(exec));
    why->result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUgraphExec handle, CUstream stream) {
  std::shared_ptr<GraphLaunch> node;  // goes without the lock where it wasn't queued
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Stream> target;
  CUresult result = with_context([&](Context& context) -> CUresult {
    CUresult found = find_stream(context, stream, &target);
    if (!found) found = check_legacy(*target);
    if (found) return found;
    std::lock_guard<std::mutex> hold(graph_mutex());
    exec = find_exec(handle);
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    if (is_capturing(*target)) return CUDA_SUCCESS;
    if (exec->sole) found = launch_memory(*exec->plan, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    if (found) return found;
    auto ended = std::make_shared<std::atomic<bool>>(false);
    node = std::make_shared<GraphLaunch>(*exec, ended);
    exec->previous = std::move(ended);
    // With the lock: were it queued behind a launch that waits for it, both would wait for ever. It isn't brief, so
    // that no node runs here.
    uint64_t position;
    found = enqueue(target, node, &position);
    if (!found) node->note(target, position);
    return found;
  });
  return result || node ? result : capture_launch(stream, *exec);
}

}  // namespace

std::shared_ptr<GraphExec> find_exec(CUgraphExec handle) { return handles<GraphExec>().share(handle); }

PlanNode* change(GraphExec& exec, const GraphNode& node) {
  auto found = exec.plan->by_serial.find(node.serial);
  if (found == exec.plan->by_serial.end()) return nullptr;
  if (exec.plan.use_count() > 1) exec.plan = std::make_shared<Plan>(*exec.plan);
  std::atomic_thread_fence(std::memory_order_acquire);  // after what the last run that let go of it read
  return &exec.plan->nodes[found->second];
}

HCQ_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  Instantiated why;
  return instantiate(out, graph, flags, &why);
}

HCQ_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log, size_t size) {
  Instantiated why;
  CUresult result = instantiate(out, graph, 0, &why);
  if (node) *node = why.node;
  if (log && size) *log = 0;
  return result;
}

HCQ_API cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* node, char* log, size_t size) {
  return cuGraphInstantiate_v2(out, graph, node, log, size);
}

HCQ_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  Instantiated why;
  CUresult result = instantiate(out, graph, params->flags, &why);
  params->hErrNode_out = why.node;
  params->result_out = why.result;
  return result;
}

HCQ_API cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return cuGraphInstantiateWithParams(out, graph, params);
}

HCQ_API cuGraphLaunch(CUgraphExec exec, CUstream stream) { return launch(exec, stream); }
HCQ_API cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) { return launch(exec, ptsz(stream)); }

// There is nothing to bring anywhere: the plan is where it runs.
HCQ_API cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Stream> target;
    CUresult result = find_stream(context, stream, &target);
    if (result) return result;
    std::lock_guard<std::mutex> hold(graph_mutex());
    return find_exec(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) { return cuGraphUpload(exec, ptsz(stream)); }

HCQ_API cuGraphExecDestroy(CUgraphExec handle) {
  std::shared_ptr<GraphExec> dropped;  // goes when the lock is given back
  return with_graphs([&]() -> CUresult {
    dropped = handles<GraphExec>().remove(handle);
    if (!dropped) return CUDA_ERROR_INVALID_VALUE;
    dropped->sole.reset();  // at once, whoever else still has the executable
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* out) {
  return with_graphs([&]() -> CUresult {
    auto exec = find_exec(handle);
    if (!exec || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = exec->flags;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphExecGetId(CUgraphExec handle, unsigned* out) {
  return with_graphs([&]() -> CUresult {
    auto exec = find_exec(handle);
    if (!exec || !out) return CUDA_ERROR_INVALID_VALUE;
    *out = exec->id;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode which, unsigned enabled) {
  return with_graphs([&]() -> CUresult {
    auto exec = find_exec(handle);
    GraphNode* node = find_node(which);
    if (!exec || !node || enabled > 1 || node->body.type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
    PlanNode* target = change(*exec, *node);
    if (!target) return CUDA_ERROR_INVALID_VALUE;
    target->enabled = enabled;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode which, unsigned* out) {
  return with_graphs([&]() -> CUresult {
    auto exec = find_exec(handle);
    GraphNode* node = find_node(which);
    if (!exec || !node || !out || node->body.type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
    auto found = exec->plan->by_serial.find(node->serial);
    if (found == exec->plan->by_serial.end()) return CUDA_ERROR_INVALID_VALUE;
    *out = exec->plan->nodes[found->second].enabled;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
