// Memory operations of streams: words awaited and written in the order of a stream. What does not live here: the API's
// entries (stream_memory.cpp), copies (copy.cpp).
#pragma once
#include <vector>

#include "api/api_graph.hpp"
#include "stream/node.hpp"

namespace cudacpu {

struct BatchMemOp final : Node {
  explicit BatchMemOp(std::vector<CUstreamBatchMemOpParams> params) : params(std::move(params)) {}

  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  // For streams, which make a node for the one run.
  CUresult run(Context& context) const override;
  bool brief() const override { return true; }
  // For graphs, whose runs share the node: does what can be done from operation `*next` on; `again` at a wait.
  CUresult step(uint32_t* next) const;

  const std::vector<CUstreamBatchMemOpParams> params;

 private:
  mutable uint32_t next_ = 0;
};

// Checks the operations, and makes the node.
CUresult make_batch_mem_op(const CUstreamBatchMemOpParams* params, unsigned count, unsigned flags, NodePtr* out);

}  // namespace cudacpu
