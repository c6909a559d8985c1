// Memory of graphs: see graph_memory.hpp.
#include "graph/graph_memory.hpp"

#include <map>

#include "graph/capture.hpp"
#include "graph/graph_entry.hpp"
#include "memory/arena.hpp"

namespace cudacpu {

namespace {

// Guarded by graph_mutex(). A block that lives is kept here, since its graph may be gone.
struct State {
  std::map<uint64_t, std::weak_ptr<GraphBlock>> blocks;
  std::map<uint64_t, std::shared_ptr<GraphBlock>> live;
  size_t most = 64;  // entries, until those of blocks that are gone are taken out
};

State& state() {
  static auto* one = new State();  // threads of the library may run until the process is gone
  return *one;
}

Arena& arena(Device& device) {
  static std::mutex lock;  // guards the list; only memory is asked for under it
  static auto* all = new std::map<Device*, std::unique_ptr<Arena>>();
  std::lock_guard<std::mutex> hold(lock);
  auto& found = (*all)[&device];
  if (!found) found = std::make_unique<Arena>(&device, true, checking());
  return *found;
}

std::shared_ptr<GraphBlock> find_block(CUdeviceptr address) {
  auto found = state().blocks.find(address);
  return found == state().blocks.end() ? nullptr : found->second.lock();
}

void note(const std::shared_ptr<GraphBlock>& block) {
  auto& blocks = state().blocks;
  if (blocks.size() >= state().most) {
    for (auto each = blocks.begin(); each != blocks.end();) each = each->second.expired() ? blocks.erase(each) : ++each;
    state().most = 2 * blocks.size() + 64;
  }
  blocks[block->address] = block;
}

// The block is free, and goes with the last graph; the caller lets go of what is returned without the lock.
std::shared_ptr<GraphBlock> end_life(GraphBlock& block) {
  block.live = false;
  auto found = state().live.find(block.address);
  if (found == state().live.end()) return nullptr;
  auto kept = std::move(found->second);
  state().live.erase(found);
  return kept;
}

const GraphBlock* block_of(const Node* work) {
  if (!work) return nullptr;
  if (work->kind() == CU_GRAPH_NODE_TYPE_MEM_ALLOC) return static_cast<const GraphAllocNode*>(work)->block.get();
  if (work->kind() == CU_GRAPH_NODE_TYPE_MEM_FREE) return static_cast<const GraphFreeNode*>(work)->block.get();
  return nullptr;
}

}  // namespace

GraphBlock::~GraphBlock() {
  remove_range(address);
  arena(device).release(address);
}

GraphAllocNode::GraphAllocNode(const CUDA_MEM_ALLOC_NODE_PARAMS& given, std::shared_ptr<GraphBlock> block)
    : params(given), access(given.accessDescs, given.accessDescs + given.accessDescCount), block(std::move(block)) {
  params.accessDescs = access.empty() ? nullptr : access.data();
}

CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS& params, NodePtr* out) {
  const CUmemLocation& location = params.poolProps.location;
  if (params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || !params.bytesize ||
      (params.accessDescCount && !params.accessDescs))
    return CUDA_ERROR_INVALID_VALUE;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || params.poolProps.handleTypes) return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = find_device(location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  uint64_t address = arena(*device).allocate(params.bytesize);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  auto block = std::make_shared<GraphBlock>(*device, address, params.bytesize);
  add_range(std::make_shared<Range>(address, params.bytesize, Memory::pooled, device->primary, device));
  params.dptr = address;
  *out = std::make_shared<GraphAllocNode>(params, std::move(block));
  return CUDA_SUCCESS;
}

CUresult make_free(CUdeviceptr address, NodePtr* out) {
  auto block = find_block(address);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  *out = std::make_shared<GraphFreeNode>(std::move(block));
  return CUDA_SUCCESS;
}

CUresult check_memory(const Graph& graph, const Node* work) {
  auto* block = const_cast<GraphBlock*>(block_of(work));
  if (!block) return CUDA_SUCCESS;
  if (work->kind() == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    block->graph = graph.id;
    note(static_cast<const GraphAllocNode*>(work)->block);
    return CUDA_SUCCESS;
  }
  // Once by the graph that allocates it, or by others.
  bool own = block->graph == graph.id;
  if (block->freed_in.count(graph.id) || (own && !block->freed_in.empty()) || block->freed_in.count(block->graph))
    return CUDA_ERROR_INVALID_VALUE;
  block->freed_in.insert(graph.id);
  return CUDA_SUCCESS;
}

CUresult launch_memory(const Plan& plan, bool free_first) {
  std::set<GraphBlock*> allocated, freed;
  for (const PlanNode& node : plan.nodes) {
    auto* block = const_cast<GraphBlock*>(block_of(node.body.work.get()));
    if (!block) continue;
    (node.body.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? allocated : freed).insert(block);
  }
  for (GraphBlock* block : allocated)
    if (block->live && !free_first) return CUDA_ERROR_INVALID_VALUE;
  for (GraphBlock* block : freed)
    if (!allocated.count(block) && !block->live) return CUDA_ERROR_INVALID_VALUE;
  for (GraphBlock* block : freed) end_life(*block);  // the launch shares it
  for (GraphBlock* block : allocated) {
    if (freed.count(block)) continue;
    block->live = true;
    state().live[block->address] = find_block(block->address);
  }
  return CUDA_SUCCESS;
}

CUresult capture_alloc(Stream& stream, Device& device, size_t bytes, CUdeviceptr* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
  params.bytesize = bytes;
  NodePtr node;
  CUresult result = make_alloc(params, &node);
  if (!result) result = capture_node(stream, node);
  if (!result) *out = params.dptr;
  return result;
}

CUresult free_graph_memory(CUdeviceptr address, bool* done) {
  std::shared_ptr<GraphBlock> kept;  // goes when the lock is given back
  {
    std::lock_guard<std::mutex> hold(graph_mutex());
    auto block = find_block(address);
    *done = block != nullptr;
    if (!block) return CUDA_SUCCESS;
    if (!block->live) return CUDA_ERROR_INVALID_VALUE;
    kept = end_life(*block);
  }
  return synchronize(*Context::current());
}

CUresult free_graph_memory(const std::shared_ptr<Stream>& stream, CUdeviceptr address, bool* done) {
  NodePtr node;
  std::shared_ptr<GraphBlock> kept;  // goes when the lock is given back
  {
    std::lock_guard<std::mutex> hold(graph_mutex());
    *done = !make_free(address, &node);
    if (!*done) return CUDA_SUCCESS;
    auto& block = const_cast<GraphBlock&>(*block_of(node.get()));
    if (!is_capturing(*stream)) {
      if (!block.live) return CUDA_ERROR_INVALID_VALUE;
      kept = end_life(block);
    }
  }
  return submit(stream, std::move(node));
}

HCQ_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                               CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  all.alloc = *params;
  return add_with_params(out, graph, nodes, nullptr, count, all, &params->dptr);
}

HCQ_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, [&](auto& params) { *out = params.alloc; });
}

HCQ_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                              CUdeviceptr address) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  params.free.dptr = address;
  return add_with_params(out, graph, nodes, nullptr, count, params);
}

HCQ_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out, [&](auto& params) { *out = params.free.dptr; });
}

HCQ_API cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute which, void* out) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    Arena::Use use = arena(*device).use();
    auto* value = static_cast<cuuint64_t*>(out);
    switch (which) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return *value = use.used, CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return *value = use.used_high, CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return *value = use.reserved, CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return *value = use.reserved_high, CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute which, void* value) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    bool used = which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, reserved = which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!value || (!used && !reserved) || *static_cast<cuuint64_t*>(value)) return CUDA_ERROR_INVALID_VALUE;
    arena(*device).reset_high(reserved, used);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGraphMemTrim(CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    arena(*device).trim(0);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
