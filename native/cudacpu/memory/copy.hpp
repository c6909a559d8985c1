// Copies. What does not live here: the many entries for them (copy_api.cpp).
#pragma once
#include "stream/node.hpp"

namespace cudacpu {

struct CopyNode : Node {
  const CUDA_MEMCPY3D params;
  Context* const context;          // of the graph node's parameters; null for a stream's
  std::unique_ptr<char[]> staged;  // holds the source, where that was pageable memory: the caller may use it again

  CopyNode(const CUDA_MEMCPY3D& params, Context* context) : params(params), context(context) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUresult run(Context& context) const override;
  bool brief() const override;
};

// The node for a copy, when all of both sides is memory; CUDA_ERROR_INVALID_VALUE else.
CUresult make_memcpy(const CUDA_MEMCPY3D& params, Context* context, NodePtr* out);

// The parameters of a copy of bytes in a row.
CUDA_MEMCPY3D flat_copy(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type, uint64_t src, size_t bytes);

// Does a call's copy: checks it and gives it to the stream. A source in pageable host memory has been read, and a
// destination there written, when this returns; `read_now`: any source has been read then.
CUresult copy_async(const CUDA_MEMCPY3D& params, CUstream stream, bool read_now = false);
// And waits for it.
CUresult copy_now(const CUDA_MEMCPY3D& params, CUstream stream);

}  // namespace cudacpu
