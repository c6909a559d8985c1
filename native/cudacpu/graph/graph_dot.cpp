// Pictures of graphs, for Graphviz. What does not live here: graphs themselves.
#include <cstdarg>
#include <cstdio>
#include <string>

#include "graph/graph_params.hpp"
#include "run/launch.hpp"

namespace cudacpu {

namespace {

const char* kind_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    default:
      return "EMPTY";
  }
}

__attribute__((format(printf, 2, 3))) void add(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

// A line of a label; what has a meaning in one is escaped.
void add_name(std::string& text, const std::string& name) {
  for (char letter : name) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
}

std::string label(const GraphNode& node, unsigned flags) {
  CUgraphNodeParams params;
  params_of(node, &params);
  std::string text;
  add(text, "%u\\n%s", node.id, kind_name(node.body.type));
  auto wants = [&](unsigned which) { return flags & (which | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE); };
  if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE))
    add(text, "\\nnode %p", static_cast<void*>(node.handle));
  switch (node.body.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      auto& kernel = params.kernel;
      text += "\\n";
      add_name(text, static_cast<const KernelNode&>(*node.body.work).function->kernel->name);
      if (!wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) break;
      add(text, "\\ngrid %u x %u x %u\\nblock %u x %u x %u\\nshared %u", kernel.gridDimX, kernel.gridDimY,
          kernel.gridDimZ, kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ, kernel.sharedMemBytes);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      auto& copy = params.memcpy.copyParams;
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
        add(text, "\\n%zu x %zu x %zu bytes\\nfrom 0x%llx\\nto 0x%llx", copy.WidthInBytes, copy.Height, copy.Depth,
            copy.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(copy.srcHost) : copy.srcDevice,
            copy.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(copy.dstHost) : copy.dstDevice);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
        add(text, "\\n%zu x %zu of %u bytes\\nto 0x%llx\\nvalue 0x%x", params.memset.width, params.memset.height,
            params.memset.elementSize, params.memset.dst, params.memset.value);
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS))
        add(text, "\\nfunction %p\\ndata %p", reinterpret_cast<void*>(params.host.fn), params.host.userData);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS))
        add(text, "\\nevent %p", static_cast<void*>(params.eventWait.event));
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
        add(text, "\\n%zu bytes at 0x%llx", params.alloc.bytesize, params.alloc.dptr);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS)) add(text, "\\n0x%llx", params.free.dptr);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS)) add(text, "\\n%u operations", params.memOp.count);
      break;
    default:
      break;
  }
  return text;
}

void draw(std::string& text, const Graph& graph, unsigned flags) {
  add(text, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", graph.id, graph.id);
  for (auto& node : graph.nodes) {
    add(text, "\"graph_%u_node_%u\" [shape=box label=\"", graph.id, node->id);
    text += label(*node, flags) + "\"]\n";
    if (node->child) draw(text, *node->child, flags);
  }
  for (auto& node : graph.nodes)
    for (const Edge& edge : node->dependents)
      add(text, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\"\n", graph.id, node->id, graph.id, edge.node->id);
  text += "}\n";
}

}  // namespace

HCQ_API cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned flags) {
  std::string text = "digraph dot {\n";
  CUresult result = with_graphs([&]() -> CUresult {
    Graph* graph = find_graph(handle);
    if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
    draw(text, *graph, flags);
    return CUDA_SUCCESS;
  });
  if (result) return result;
  text += "}\n";
  std::FILE* file = std::fopen(path, "w");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace cudacpu
