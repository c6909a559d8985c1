// Parameters of nodes: see graph_params.hpp.
#include "graph/graph_params.hpp"

#include <algorithm>

#include "api/log.hpp"
#include "graph/graph_memory.hpp"
#include "memory/copy.hpp"
#include "memory/memset.hpp"
#include "run/launch.hpp"
#include "stream/event.hpp"
#include "stream/host.hpp"
#include "stream/stream_memory.hpp"

namespace cudacpu {

namespace {

const char* kind_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "external semaphore";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "conditional";
    case CU_GRAPH_NODE_TYPE_MEMCPY_BATCH:
      return "batch memcpy";
    default:
      return "this kind of";
  }
}

// A context as parameters name it: theirs, or the current one.
CUresult context_of(CUcontext given, Context** out) {
  *out = given ? handles<Context>().find(given) : Context::current();
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult make_body(const CUgraphNodeParams& params, const Node* before, NodeBody* out) {
  Context* context = nullptr;
  CUresult result = CUDA_SUCCESS;
  out->type = params.type;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      auto* kernel = dynamic_cast<const KernelNode*>(before);
      std::shared_ptr<const KernelNode> made;
      result = kernel ? make_kernel(params.kernel, kernel->attributes.data(),
                                    static_cast<unsigned>(kernel->attributes.size()), &made)
                      : make_kernel(params.kernel, nullptr, 0, &made);
      if (!result) context = made->function->context;
      out->work = std::move(made);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      result = context_of(params.memcpy.copyCtx, &context);
      if (!result) result = make_memcpy(params.memcpy.copyParams, context, &out->work);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      result = context_of(params.memset.ctx, &context);
      if (!result) result = make_memset(params.memset, context, &out->work);
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      return make_host(params.host, &out->work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return make_event_record(params.eventRecord.event, &out->work);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return make_event_wait(params.eventWait.event, &out->work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      result = context_of(params.memOp.ctx, &context);
      if (!result)
        result = make_batch_mem_op(params.memOp.paramArray, params.memOp.count, params.memOp.flags, &out->work);
      break;
    default:
      log_line(CU_LOG_LEVEL_ERROR,
               std::string("CUDA on the CPU has no ") + kind_name(params.type) + " nodes in graphs");
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!result) out->context = context->handle;
  return result;
}

void params_of(const GraphNode& node, CUgraphNodeParams* out) {
  *out = CUgraphNodeParams{};
  out->type = node.body.type;
  const Node* work = node.body.work.get();
  switch (node.body.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      out->kernel = static_cast<const KernelNode*>(work)->params;
      out->kernel.ctx = node.body.context;
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      out->memcpy.copyCtx = node.body.context;
      out->memcpy.copyParams = static_cast<const CopyNode*>(work)->params;
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      static_cast<CUDA_MEMSET_NODE_PARAMS&>(out->memset) = static_cast<const FillNode*>(work)->params;
      out->memset.ctx = node.body.context;
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      static_cast<CUDA_HOST_NODE_PARAMS&>(out->host) = static_cast<const HostNode*>(work)->params;
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      out->eventRecord.event = static_cast<const EventNode*>(work)->event->handle;
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      out->eventWait.event = static_cast<const EventNode*>(work)->event->handle;
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      auto& operations = static_cast<const BatchMemOp*>(work)->params;
      out->memOp.ctx = node.body.context;
      out->memOp.count = static_cast<unsigned>(operations.size());
      out->memOp.paramArray = const_cast<CUstreamBatchMemOpParams*>(operations.data());  // the API has no const here
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      out->alloc = static_cast<const GraphAllocNode*>(work)->params;
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      out->free.dptr = static_cast<const GraphFreeNode*>(work)->block->address;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      out->graph.graph = node.child->handle;
      break;
    default:
      break;
  }
}

CUgraphExecUpdateResult update_refused(const NodeBody& before, const NodeBody& after) {
  switch (before.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      auto &was = static_cast<const KernelNode&>(*before.work), &is = static_cast<const KernelNode&>(*after.work);
      if (was.function->context != is.function->context) return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
      if (was.cooperative != is.cooperative) return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      auto &was = static_cast<const CopyNode&>(*before.work).params,
           &is = static_cast<const CopyNode&>(*after.work).params;
      bool kinds = was.srcMemoryType == is.srcMemoryType && was.dstMemoryType == is.dstMemoryType;
      return kinds ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      auto &was = static_cast<const FillNode&>(*before.work).params,
           &is = static_cast<const FillNode&>(*after.work).params;
      bool flat = was.height <= 1 && is.height <= 1;
      bool shape = was.width == is.width && was.height == is.height && was.elementSize == is.elementSize;
      return flat || shape ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      auto& was = static_cast<const BatchMemOp&>(*before.work).params;
      auto& is = static_cast<const BatchMemOp&>(*after.work).params;
      bool same = std::equal(was.begin(), was.end(), is.begin(), is.end(),
                             [](auto& a, auto& b) { return a.operation == b.operation; });
      return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return before.work == after.work ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

NodePtr work_of(CUgraphNode handle) {
  std::lock_guard<std::mutex> hold(graph_mutex());
  GraphNode* node = find_node(handle);
  return node ? node->body.work : nullptr;
}

CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS& params) {
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_KERNEL;
  all.kernel = params;
  return all;
}

CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return kernel_params({p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ,
                        p.sharedMemBytes, p.kernelParams, p.extra, nullptr, nullptr});
}

CUgraphNodeParams memcpy_params(const CUDA_MEMCPY3D& params, CUcontext context) {
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  all.memcpy.copyParams = params;
  all.memcpy.copyCtx = context;
  return all;
}

CUgraphNodeParams memset_params(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context) {
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_MEMSET;
  static_cast<CUDA_MEMSET_NODE_PARAMS&>(all.memset) = params;
  all.memset.ctx = context;
  return all;
}

CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS& params) {
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_HOST;
  static_cast<CUDA_HOST_NODE_PARAMS&>(all.host) = params;
  return all;
}

CUgraphNodeParams event_params(CUgraphNodeType type, CUevent event) {
  CUgraphNodeParams all{};
  all.type = type;
  all.eventWait.event = event;  // of both kinds the first field
  return all;
}

CUgraphNodeParams batch_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params) {
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  all.memOp = params;
  return all;
}

}  // namespace cudacpu
