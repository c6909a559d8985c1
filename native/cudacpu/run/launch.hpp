// Kernels as work of streams and graphs. What does not live here: running them (grid.hpp).
#pragma once
#include <memory>
#include <vector>

#include "api/api_graph.hpp"
#include "api/api_launch.hpp"
#include "module/module.hpp"
#include "stream/node.hpp"

namespace cudacpu {

// A launch with its arguments, which it owns. Immutable.
class KernelNode final : public Node {
 public:
  const std::shared_ptr<Function> function;
  const bool cooperative;
  // `kernelParams` points to the node's own arguments, one each; `extra` is null.
  CUDA_KERNEL_NODE_PARAMS params;
  const std::vector<CUlaunchAttribute> attributes;

  KernelNode(std::shared_ptr<Function> function, const CUDA_KERNEL_NODE_PARAMS& params, const uint8_t* arguments,
             bool cooperative, std::vector<CUlaunchAttribute> attributes);
  KernelNode(const KernelNode&) = delete;

  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUresult run(Context& context) const override;
  bool brief() const override;

 private:
  static constexpr size_t kInline = 16;  // parameters; few kernels have more
  alignas(16) uint8_t inline_bytes_[kInline * 8];
  void* inline_params_[kInline];
  std::vector<uint8_t> bytes_;
  std::vector<void*> pointers_;
  uint8_t* arguments_;
};

// Checks a launch and copies its arguments; the errors of cuLaunchKernel. `params.kern` counts where `func` is null.
CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& params, const CUlaunchAttribute* attributes, unsigned count,
                     std::shared_ptr<const KernelNode>* out);

}  // namespace cudacpu
