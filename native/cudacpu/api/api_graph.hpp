// The structures of graphs and of memory operations as the API lays them out. What does not live here: what a graph is
// (graph.hpp), and the structures of copies, pools and launches (api.hpp, api_launch.hpp).
#pragma once
#include "api/api.hpp"

namespace cudacpu {

using CUgraphConditionalHandle = unsigned long long;

// Until CUDA 12.
struct CUDA_KERNEL_NODE_PARAMS_v1 {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
};

struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};

struct CUDA_MEMSET_NODE_PARAMS_v2 : CUDA_MEMSET_NODE_PARAMS {
  CUcontext ctx;
};

struct CUDA_HOST_NODE_PARAMS {
  CUhostFn fn;
  void* userData;
};

struct CUDA_HOST_NODE_PARAMS_v2 : CUDA_HOST_NODE_PARAMS {
  unsigned syncMode;
  CUcontext ctx;
};

struct CUDA_MEMCPY_NODE_PARAMS {
  int flags, reserved;
  CUcontext copyCtx;
  CUDA_MEMCPY3D copyParams;
};

struct CUDA_CHILD_GRAPH_NODE_PARAMS {
  CUgraph graph;
  CUgraphChildGraphNodeOwnership ownership;
};

struct CUDA_EVENT_RECORD_NODE_PARAMS {
  CUevent event;
  CUcontext ctx;
};

struct CUDA_EVENT_WAIT_NODE_PARAMS {
  CUevent event;
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount, bytesize;
  CUdeviceptr dptr;
};

struct CUDA_MEM_FREE_NODE_PARAMS {
  CUdeviceptr dptr;
};

struct MemOpValue {  // of waits and writes
  CUstreamBatchMemOpType operation;
  CUdeviceptr address;
  uint64_t value;  // of 32-bit operations the low half
  unsigned flags;
  CUdeviceptr alias;
};

struct MemOpFlags {  // of barriers and flushes
  CUstreamBatchMemOpType operation;
  unsigned flags;
};

struct MemOpReduction {
  CUstreamBatchMemOpType operation;
  unsigned flags;
  CUstreamAtomicReductionOpType reductionOp;
  CUstreamAtomicReductionDataType dataType;
  CUdeviceptr address;
  uint64_t value;
  CUdeviceptr alias;
};

union CUstreamBatchMemOpParams {
  CUstreamBatchMemOpType operation;
  MemOpValue value;
  MemOpFlags barrier;
  MemOpReduction reduction;
  uint64_t pad[6];
};

struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
  CUcontext ctx;
  unsigned count;
  CUstreamBatchMemOpParams* paramArray;
  unsigned flags;
};

struct CUgraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY_NODE_PARAMS memcpy;
    CUDA_MEMSET_NODE_PARAMS_v2 memset;
    CUDA_HOST_NODE_PARAMS_v2 host;
    CUDA_CHILD_GRAPH_NODE_PARAMS graph;
    CUDA_EVENT_WAIT_NODE_PARAMS eventWait;
    CUDA_EVENT_RECORD_NODE_PARAMS eventRecord;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUDA_MEM_FREE_NODE_PARAMS free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
    char asBytes[232];
  };
  long long reserved2;
};

struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  uint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  CUgraphInstantiateResult result_out;
};

struct CUgraphExecUpdateResultInfo {
  CUgraphExecUpdateResult result;
  CUgraphNode errorNode, errorFromNode;
};

static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == 72 && sizeof(CUDA_MEMSET_NODE_PARAMS_v2) == 48 &&
              sizeof(CUDA_HOST_NODE_PARAMS_v2) == 32 && sizeof(CUDA_MEMCPY_NODE_PARAMS) == 216 &&
              sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120 && sizeof(CUstreamBatchMemOpParams) == 48 &&
              sizeof(CUgraphNodeParams) == 256 && sizeof(CUgraphEdgeData) == 8 &&
              sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32);

}  // namespace cudacpu
