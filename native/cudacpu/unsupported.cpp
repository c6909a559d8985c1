// What a CUDA driver on the CPU has not: each such entry answers CUDA_ERROR_NOT_SUPPORTED, and says so once in the log.
// What does not live here: entries for graphics (cuGetProcAddress doesn't find them).
#include <atomic>

#include "log.hpp"

namespace cudacpu {
namespace {

CUresult refuse(std::atomic<bool>& told, const char* name, const char* what) {
  // Relaxed: only that it is said once.
  if (!told.exchange(true, std::memory_order_relaxed)) {
    log_line(CU_LOG_LEVEL_WARNING, std::string(name) + ": CUDA on the CPU has no " + what);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

// An entry that looks at none of its arguments, whatever they are.
#define REFUSE(name, what)                \
  HCQ_API name() {                        \
    static std::atomic<bool> told{false}; \
    return refuse(told, #name, what);     \
  }

#define ARRAYS(name) REFUSE(name, "arrays")
ARRAYS(cuArrayCreate_v2)
ARRAYS(cuArrayGetDescriptor_v2)
ARRAYS(cuArray3DCreate_v2)
ARRAYS(cuArray3DGetDescriptor_v2)
ARRAYS(cuArrayDestroy)
ARRAYS(cuArrayGetMemoryRequirements)
ARRAYS(cuArrayGetPlane)
ARRAYS(cuArrayGetSparseProperties)
ARRAYS(cuMipmappedArrayCreate)
ARRAYS(cuMipmappedArrayDestroy)
ARRAYS(cuMipmappedArrayGetLevel)
ARRAYS(cuMipmappedArrayGetMemoryRequirements)
ARRAYS(cuMipmappedArrayGetSparseProperties)
ARRAYS(cuMemMapArrayAsync)
ARRAYS(cuMemMapArrayAsync_ptsz)
ARRAYS(cuMemcpyAtoA_v2)
ARRAYS(cuMemcpyAtoA_v2_ptds)
ARRAYS(cuMemcpyAtoD_v2)
ARRAYS(cuMemcpyAtoD_v2_ptds)
ARRAYS(cuMemcpyAtoH_v2)
ARRAYS(cuMemcpyAtoH_v2_ptds)
ARRAYS(cuMemcpyDtoA_v2)
ARRAYS(cuMemcpyDtoA_v2_ptds)
ARRAYS(cuMemcpyHtoA_v2)
ARRAYS(cuMemcpyHtoA_v2_ptds)
ARRAYS(cuMemcpyAtoHAsync_v2)
ARRAYS(cuMemcpyAtoHAsync_v2_ptsz)
ARRAYS(cuMemcpyHtoAAsync_v2)
ARRAYS(cuMemcpyHtoAAsync_v2_ptsz)
#undef ARRAYS

#define TEXTURES(name) REFUSE(name, "textures and surfaces")
TEXTURES(cuModuleGetTexRef)
TEXTURES(cuModuleGetSurfRef)
TEXTURES(cuTexObjectCreate)
TEXTURES(cuTexObjectDestroy)
TEXTURES(cuTexObjectGetResourceDesc)
TEXTURES(cuTexObjectGetResourceViewDesc)
TEXTURES(cuTexObjectGetTextureDesc)
TEXTURES(cuSurfObjectCreate)
TEXTURES(cuSurfObjectDestroy)
TEXTURES(cuSurfObjectGetResourceDesc)
TEXTURES(cuTexRefCreate)
TEXTURES(cuTexRefDestroy)
TEXTURES(cuDeviceGetTexture1DLinearMaxWidth)
#undef TEXTURES

#define TENSORS(name) REFUSE(name, "tensor maps")
TENSORS(cuTensorMapEncodeTiled)
TENSORS(cuTensorMapEncodeIm2col)
TENSORS(cuTensorMapEncodeIm2colWide)
TENSORS(cuTensorMapReplaceAddress)
TENSORS(cuTensorMapSetAllocationClass)
#undef TENSORS

#define GREEN(name) REFUSE(name, "green contexts: multiprocessors can't be divided")
GREEN(cuGreenCtxCreate)
GREEN(cuGreenCtxDestroy)
GREEN(cuGreenCtxGetDevResource)
GREEN(cuGreenCtxGetId)
GREEN(cuGreenCtxRecordEvent)
GREEN(cuGreenCtxWaitEvent)
GREEN(cuGreenCtxStreamCreate)
GREEN(cuCtxFromGreenCtx)
GREEN(cuCtxGetDevResource)
GREEN(cuDeviceGetDevResource)
GREEN(cuStreamGetDevResource)
GREEN(cuStreamGetDevResource_ptsz)
GREEN(cuStreamGetGreenCtx)
GREEN(cuDevResourceGenerateDesc)
GREEN(cuDevSmResourceSplit)
GREEN(cuDevSmResourceSplitByCount)
GREEN(cuCtxGetExecAffinity)
#undef GREEN

#define SHARING(name) REFUSE(name, "memory or events of other processes and interfaces")
SHARING(cuIpcGetMemHandle)
SHARING(cuIpcOpenMemHandle_v2)
SHARING(cuIpcCloseMemHandle)
SHARING(cuIpcGetEventHandle)
SHARING(cuIpcOpenEventHandle)
SHARING(cuMemPoolExportToShareableHandle)
SHARING(cuMemPoolImportFromShareableHandle)
SHARING(cuMemPoolExportPointer)
SHARING(cuMemPoolImportPointer)
SHARING(cuMemGetHandleForAddressRange)
SHARING(cuImportExternalMemory)
SHARING(cuDestroyExternalMemory)
SHARING(cuExternalMemoryGetMappedBuffer)
SHARING(cuExternalMemoryGetMappedMipmappedArray)
SHARING(cuImportExternalSemaphore)
SHARING(cuDestroyExternalSemaphore)
SHARING(cuSignalExternalSemaphoresAsync)
SHARING(cuSignalExternalSemaphoresAsync_ptsz)
SHARING(cuWaitExternalSemaphoresAsync)
SHARING(cuWaitExternalSemaphoresAsync_ptsz)
SHARING(cuDeviceGetNvSciSyncAttributes)
SHARING(cuFlushGPUDirectRDMAWrites)
#undef SHARING

#define MULTICAST(name) REFUSE(name, "multicast objects")
MULTICAST(cuMulticastCreate)
MULTICAST(cuMulticastAddDevice)
MULTICAST(cuMulticastBindMem)
MULTICAST(cuMulticastBindMem_v2)
MULTICAST(cuMulticastBindAddr)
MULTICAST(cuMulticastBindAddr_v2)
MULTICAST(cuMulticastUnbind)
MULTICAST(cuMulticastGetGranularity)
#undef MULTICAST

#define PROCESS(name) REFUSE(name, "core dumps and checkpoints of its own")
PROCESS(cuCoredumpGetAttribute)
PROCESS(cuCoredumpGetAttributeGlobal)
PROCESS(cuCoredumpSetAttribute)
PROCESS(cuCoredumpSetAttributeGlobal)
PROCESS(cuCheckpointProcessGetRestoreThreadId)
PROCESS(cuCheckpointProcessGetState)
PROCESS(cuCheckpointProcessLock)
PROCESS(cuCheckpointProcessCheckpoint)
PROCESS(cuCheckpointProcessRestore)
PROCESS(cuCheckpointProcessUnlock)
#undef PROCESS

REFUSE(cuDeviceGetLuid, "locally unique identifiers: they are Windows'")
REFUSE(cuDeviceRegisterAsyncNotification, "notifications of memory budgets")
REFUSE(cuDeviceUnregisterAsyncNotification, "notifications of memory budgets")
REFUSE(cuMemBatchDecompressAsync, "decompression engine")
REFUSE(cuMemBatchDecompressAsync_ptsz, "decompression engine")
REFUSE(cuLaunchCooperativeKernelMultiDevice, "launch over several devices: CUDA itself dropped it")

}  // namespace cudacpu
