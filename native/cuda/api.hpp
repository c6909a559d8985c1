// The functions of CUDA's driver API that hcq calls, declared here and looked up at run time: nothing is linked, and no
// header of the toolkit is needed to build. Names, numbers and layouts are those of the CUDA Driver API reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/unavailable.hpp"

namespace hcq::cuda {

using Handle = void*;  // of a context, stream, event, module, function, pool, graph or node
using Address = unsigned long long;
using Ordinal = int;  // of a device
using Result = int;

constexpr Result kSuccess = 0, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100, kNotReady = 600;
constexpr Result kNoBinary = 209, kUnsupportedPtx = 222;
constexpr Result kInvalidValue = 1, kNotFound = 500, kNotSupported = 801, kPeerAlreadyEnabled = 704;

constexpr unsigned kNonBlocking = 1;                       // a stream that the default stream does not wait for
constexpr unsigned kBlockingSync = 1, kDisableTiming = 2;  // events
constexpr unsigned kPortable = 1, kDeviceMap = 2;  // memory of the host; write-combined it would have two addresses
constexpr unsigned kAttachGlobal = 1;              // managed memory
constexpr unsigned kWaitAtLeast = 0;               // CU_STREAM_WAIT_VALUE_GEQ
constexpr int kFunctionItems = 0, kDeclaredLocal = 1, kMostGivenLocal = 8;  // CU_FUNC_ATTRIBUTE_...
constexpr int kPointerDevice = 9;                                           // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr int kReleaseThreshold = 4;                                        // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

struct MemLocation {
  int type;  // 1: a device
  int id;
};

struct PoolProperties {
  int allocation_type;  // 1: pinned
  int handle_types;
  MemLocation location;
  void* security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProperties) == 88, "CUmemPoolProps");

struct AccessDescription {
  MemLocation location;
  int flags;  // 3: read and write
};

struct KernelNode {
  Handle function;
  unsigned grid[3], block[3], shared_bytes;
  void** params;
  void** extra;
  Handle kernel, context;
};
static_assert(sizeof(KernelNode) == 72, "CUDA_KERNEL_NODE_PARAMS_v2");

struct Copy3D {
  size_t src_x, src_y, src_z, src_lod;
  int src_type;  // 4: unified addresses
  const void* src_host;
  Address src_device;
  void* src_array;
  void* reserved0;
  size_t src_pitch, src_height;
  size_t dst_x, dst_y, dst_z, dst_lod;
  int dst_type;
  void* dst_host;
  Address dst_device;
  void* dst_array;
  void* reserved1;
  size_t dst_pitch, dst_height;
  size_t width, height, depth;
};
static_assert(sizeof(Copy3D) == 200, "CUDA_MEMCPY3D_v2");
constexpr int kUnified = 4;

// One of cuStreamBatchMemOp's.
struct MemoryOperation {
  int operation;
  Address address;
  uint64_t value;
  unsigned flags;
  Address alias;
  uint64_t reserved;
};
static_assert(sizeof(MemoryOperation) == 48, "CUstreamBatchMemOpParams");
constexpr int kWriteValue64 = 5;  // CU_STREAM_MEM_OP_WRITE_VALUE_64: after a fence for what came before it

// X(name here, symbol, arguments)
#define HCQ_CUDA_FUNCTIONS(X)                                                                       \
  X(init, cuInit, (unsigned))                                                                       \
  X(driver_version, cuDriverGetVersion, (int*))                                                     \
  X(error_name, cuGetErrorName, (Result, const char**))                                             \
  X(error_string, cuGetErrorString, (Result, const char**))                                         \
  X(device_count, cuDeviceGetCount, (int*))                                                         \
  X(device_get, cuDeviceGet, (Ordinal*, int))                                                       \
  X(device_name, cuDeviceGetName, (char*, int, Ordinal))                                            \
  X(device_total, cuDeviceTotalMem_v2, (size_t*, Ordinal))                                          \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, Ordinal))                                   \
  X(can_access_peer, cuDeviceCanAccessPeer, (int*, Ordinal, Ordinal))                               \
  X(primary_retain, cuDevicePrimaryCtxRetain, (Handle*, Ordinal))                                   \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (Ordinal))                                       \
  X(primary_reset, cuDevicePrimaryCtxReset_v2, (Ordinal))                                           \
  X(push, cuCtxPushCurrent_v2, (Handle))                                                            \
  X(pop, cuCtxPopCurrent_v2, (Handle*))                                                             \
  X(current, cuCtxGetCurrent, (Handle*))                                                            \
  X(synchronize, cuCtxSynchronize, ())                                                              \
  X(enable_peer, cuCtxEnablePeerAccess, (Handle, unsigned))                                         \
  X(mem_info, cuMemGetInfo_v2, (size_t*, size_t*))                                                  \
  X(mem_alloc, cuMemAlloc_v2, (Address*, size_t))                                                   \
  X(mem_free, cuMemFree_v2, (Address))                                                              \
  X(mem_alloc_managed, cuMemAllocManaged, (Address*, size_t, unsigned))                             \
  X(pointer_attribute, cuPointerGetAttribute, (void*, int, Address))                                \
  X(host_alloc, cuMemHostAlloc, (void**, size_t, unsigned))                                         \
  X(host_free, cuMemFreeHost, (void*))                                                              \
  X(host_address, cuMemHostGetDevicePointer_v2, (Address*, void*, unsigned))                        \
  X(host_register, cuMemHostRegister_v2, (void*, size_t, unsigned))                                 \
  X(host_unregister, cuMemHostUnregister, (void*))                                                  \
  X(copy_async, cuMemcpyAsync, (Address, Address, size_t, Handle))                                  \
  X(stream_create, cuStreamCreate, (Handle*, unsigned))                                             \
  X(stream_destroy, cuStreamDestroy_v2, (Handle))                                                   \
  X(stream_query, cuStreamQuery, (Handle))                                                          \
  X(stream_synchronize, cuStreamSynchronize, (Handle))                                              \
  X(stream_wait_event, cuStreamWaitEvent, (Handle, Handle, unsigned))                               \
  X(event_create, cuEventCreate, (Handle*, unsigned))                                               \
  X(event_destroy, cuEventDestroy_v2, (Handle))                                                     \
  X(event_record, cuEventRecord, (Handle, Handle))                                                  \
  X(event_query, cuEventQuery, (Handle))                                                            \
  X(event_synchronize, cuEventSynchronize, (Handle))                                                \
  X(event_elapsed, cuEventElapsedTime, (float*, Handle, Handle))                                    \
  X(module_load, cuModuleLoadDataEx, (Handle*, const void*, unsigned, int*, void**))                \
  X(module_unload, cuModuleUnload, (Handle))                                                        \
  X(module_function, cuModuleGetFunction, (Handle*, Handle, const char*))                           \
  X(module_global, cuModuleGetGlobal_v2, (Address*, size_t*, Handle, const char*))                  \
  X(function_attribute, cuFuncGetAttribute, (int*, int, Handle))                                    \
  X(function_set, cuFuncSetAttribute, (Handle, int, int))                                           \
  X(groups_at_a_time, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, Handle, int, size_t))     \
  X(launch_together, cuLaunchCooperativeKernel,                                                     \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**)) \
  X(launch, cuLaunchKernel,                                                                         \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**))

// Those that a driver, or a device, may lack: null then.
#define HCQ_CUDA_OPTIONAL(X)                                                                                \
  X(write_value, cuStreamWriteValue64_v2, (Handle, Address, uint64_t, unsigned))                            \
  X(wait_value, cuStreamWaitValue64_v2, (Handle, Address, uint64_t, unsigned))                              \
  X(function_load, cuFuncLoad, (Handle))                                                                    \
  X(batch_operations, cuStreamBatchMemOp_v2, (Handle, unsigned, MemoryOperation*, unsigned))                \
  X(pool_create, cuMemPoolCreate, (Handle*, const PoolProperties*))                                         \
  X(pool_destroy, cuMemPoolDestroy, (Handle))                                                               \
  X(pool_set, cuMemPoolSetAttribute, (Handle, int, void*))                                                  \
  X(pool_access, cuMemPoolSetAccess, (Handle, const AccessDescription*, size_t))                            \
  X(pool_trim, cuMemPoolTrimTo, (Handle, size_t))                                                           \
  X(alloc_async, cuMemAllocFromPoolAsync, (Address*, size_t, Handle, Handle))                               \
  X(free_async, cuMemFreeAsync, (Address, Handle))                                                          \
  X(graph_create, cuGraphCreate, (Handle*, unsigned))                                                       \
  X(graph_destroy, cuGraphDestroy, (Handle))                                                                \
  X(graph_add_kernel, cuGraphAddKernelNode_v2, (Handle*, Handle, const Handle*, size_t, const KernelNode*)) \
  X(graph_add_copy, cuGraphAddMemcpyNode, (Handle*, Handle, const Handle*, size_t, const Copy3D*, Handle))  \
  X(graph_add_empty, cuGraphAddEmptyNode, (Handle*, Handle, const Handle*, size_t))                         \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (Handle*, Handle, unsigned long long))                  \
  X(graph_exec_kernel, cuGraphExecKernelNodeSetParams_v2, (Handle, Handle, const KernelNode*))              \
  X(graph_exec_copy, cuGraphExecMemcpyNodeSetParams, (Handle, Handle, const Copy3D*, Handle))               \
  X(function_parameter, cuFuncGetParamInfo, (Handle, size_t, size_t*, size_t*))                             \
  X(function_name, cuFuncGetName, (const char**, Handle))                                                   \
  X(module_count, cuModuleGetFunctionCount, (unsigned*, Handle))                                            \
  X(module_functions, cuModuleEnumerateFunctions, (Handle*, unsigned, Handle))                              \
  X(graph_launch, cuGraphLaunch, (Handle, Handle))                                                          \
  X(graph_exec_destroy, cuGraphExecDestroy, (Handle))

struct Api {
#define HCQ_CUDA_POINTER(name, symbol, arguments) Result(*name) arguments;
  HCQ_CUDA_FUNCTIONS(HCQ_CUDA_POINTER)
  HCQ_CUDA_OPTIONAL(HCQ_CUDA_POINTER)
#undef HCQ_CUDA_POINTER
};

// Something that CUDA refused.
struct Failure {
  Result result;
  std::string said;
};

// Loads libcuda.so.1 and starts it, once a process; throws Unavailable, each time anew where it does not work.
const Api& load();
const Api& api();  // after load

std::string version_words(int version);  // 12040: 12.4
std::string words(Result);               // "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
std::string failure_of(const char* what, Result);
void check(const char* what, Result);  // throws Failure

}  // namespace hcq::cuda
