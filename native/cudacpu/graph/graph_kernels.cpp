// The API's entries for kernel nodes of graphs, and their attributes. What does not live here: launches (launch.hpp).
#include <algorithm>
#include <cstring>

#include "graph/graph_entry.hpp"
#include "run/launch.hpp"

namespace cudacpu {

namespace {

constexpr size_t old_size = offsetof(CUDA_KERNEL_NODE_PARAMS, kern);  // of CUDA_KERNEL_NODE_PARAMS_v1

// The kernel node of a handle; null for others.
std::shared_ptr<const KernelNode> kernel_of(CUgraphNode handle) {
  return std::dynamic_pointer_cast<const KernelNode>(work_of(handle));
}

// Gives a kernel node other attributes.
CUresult set_attributes(CUgraphNode handle, const KernelNode& kernel,
                        const std::vector<CUlaunchAttribute>& attributes) {
  std::shared_ptr<const KernelNode> made;
  CUresult result = make_kernel(kernel.params, attributes.data(), static_cast<unsigned>(attributes.size()), &made);
  if (result) return result;
  NodePtr dropped = std::move(made);  // becomes the old one, and goes when the lock is given back
  std::lock_guard<std::mutex> hold(graph_mutex());
  GraphNode* node = find_node(handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  std::swap(node->body.work, dropped);
  return CUDA_SUCCESS;
}

bool for_graphs(CUlaunchAttributeID which) {
  switch (which) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace

HCQ_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                                const CUDA_KERNEL_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_with_params(out, graph, nodes, nullptr, count, kernel_params(*params));
}

HCQ_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
                             const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_with_params(out, graph, nodes, nullptr, count, kernel_params(*params));
}

HCQ_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return get_params(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [&](auto& params) { *out = params.kernel; });
}

HCQ_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  static_assert(old_size == sizeof(CUDA_KERNEL_NODE_PARAMS_v1));
  return get_params(node, CU_GRAPH_NODE_TYPE_KERNEL, out,
                    [&](auto& params) { std::memcpy(out, &params.kernel, old_size); });
}

HCQ_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
  return params ? set_params(node, kernel_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return params ? set_params(node, kernel_params(*params)) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID which, CUlaunchAttribute::Value* out) {
  return with_init([&]() -> CUresult {
    auto kernel = kernel_of(handle);
    if (!kernel || !out || !for_graphs(which)) return CUDA_ERROR_INVALID_VALUE;
    std::memset(out, 0, sizeof *out);
    for (const CUlaunchAttribute& attribute : kernel->attributes)
      if (attribute.id == which) *out = attribute.value;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID which,
                                      const CUlaunchAttribute::Value* value) {
  return with_init([&]() -> CUresult {
    auto kernel = kernel_of(handle);
    if (!kernel || !value || !for_graphs(which)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUlaunchAttribute> attributes = kernel->attributes;
    auto found = std::find_if(attributes.begin(), attributes.end(), [&](auto& one) { return one.id == which; });
    if (found == attributes.end()) found = attributes.insert(found, CUlaunchAttribute{which, {}, {}});
    found->value = *value;
    return set_attributes(handle, *kernel, attributes);
  });
}

HCQ_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return with_init([&]() -> CUresult {
    auto source = kernel_of(from), target = kernel_of(to);
    if (!source || !target || source->function->context != target->function->context) return CUDA_ERROR_INVALID_VALUE;
    return set_attributes(to, *target, source->attributes);
  });
}

}  // namespace cudacpu
