// Memory that graphs allocate and free. What does not live here: pools (pool.hpp).
#pragma once
#include <set>

#include "graph/graph_params.hpp"
#include "graph/graph_plan.hpp"
#include "memory/memory.hpp"

namespace cudacpu {

// What an allocation node allocates. The address is fixed as long as a graph, an executable or a launch may use it, and
// so it is taken from the system when the node is made; launches and frees only say whether it may be used.
struct GraphBlock {
  Device& device;
  const uint64_t address;
  const size_t bytes;
  uint32_t graph;               // id of the graph that allocates it
  std::set<uint32_t> freed_in;  // ids of graphs that free it
  bool live = false;            // a launch allocated it, and nothing freed it since, in the order of calls

  GraphBlock(Device& device, uint64_t address, size_t bytes) : device(device), address(address), bytes(bytes) {}
  ~GraphBlock();
};

struct GraphAllocNode final : Node {
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  const std::vector<CUmemAccessDesc> access;  // params points to them
  const std::shared_ptr<GraphBlock> block;

  GraphAllocNode(const CUDA_MEM_ALLOC_NODE_PARAMS& params, std::shared_ptr<GraphBlock> block);
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
  CUresult run(Context&) const override { return CUDA_SUCCESS; }
};

struct GraphFreeNode final : Node {
  const std::shared_ptr<GraphBlock> block;

  explicit GraphFreeNode(std::shared_ptr<GraphBlock> block) : block(std::move(block)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  CUresult run(Context&) const override { return CUDA_SUCCESS; }
  bool brief() const override { return true; }
};

// Makes an allocation's node and sets `params.dptr`.
CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS& params, NodePtr* out);
// The node that frees an allocation's address; CUDA_ERROR_INVALID_VALUE for others. graph_mutex() is held.
CUresult make_free(CUdeviceptr address, NodePtr* out);
// Whether a graph may have such a node now, and notes that it has; for other nodes nothing. graph_mutex() is held.
CUresult check_memory(const Graph& graph, const Node* work);
// What a launch does to the memory: its nodes allocate and free. graph_mutex() is held.
CUresult launch_memory(const Plan& plan, bool free_first);

// For the calls of pools. An allocation in a stream that is being captured, which becomes a node.
CUresult capture_alloc(Stream& stream, Device& device, size_t bytes, CUdeviceptr* out);
// A free that waits for the context's work, if the address is an allocation's of a graph.
CUresult free_graph_memory(CUdeviceptr address, bool* done);
// A free in the order of a stream, captured or not, if the address is an allocation's of a graph.
CUresult free_graph_memory(const std::shared_ptr<Stream>& stream, CUdeviceptr address, bool* done);

}  // namespace cudacpu
