// What devices can do with each other's and the host's memory. All of it is one address space here, so that enabling
// and disabling only keeps count. What does not live here: copies (copy.cpp).
#include "api/entry.hpp"
#include "api/handle.hpp"

namespace cudacpu {
namespace {

// Every operation on every scalar that has it is native: the same cores do it.
CUresult capabilities_of(unsigned* out, const CUatomicOperation* operations, unsigned count) {
  if (!out || !operations || !count) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned scalars = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
  for (unsigned i = 0; i < count; i++) {
    if (operations[i] < 0 || operations[i] > CU_ATOMIC_OPERATION_FLOAT_MAX) return CUDA_ERROR_INVALID_VALUE;
    bool exchange = operations[i] == CU_ATOMIC_OPERATION_EXCHANGE || operations[i] == CU_ATOMIC_OPERATION_CAS;
    bool real = operations[i] >= CU_ATOMIC_OPERATION_FLOAT_ADD;
    out[i] = scalars | (exchange ? CU_ATOMIC_CAPABILITY_SCALAR_128 : CU_ATOMIC_CAPABILITY_REDUCTION) |
             CU_ATOMIC_CAPABILITY_SIGNED | (real ? 0 : CU_ATOMIC_CAPABILITY_UNSIGNED);
  }
  return CUDA_SUCCESS;
}

}  // namespace

HCQ_API cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  return with_init([&]() -> CUresult {
    if (!find_device(ordinal) || !find_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    *can = ordinal != peer && peers();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute which, CUdevice ordinal, CUdevice peer) {
  return with_init([&]() -> CUresult {
    if (!find_device(ordinal) || !find_device(peer) || ordinal == peer) return CUDA_ERROR_INVALID_DEVICE;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    switch (which) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        return *value = 0, CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        return *value = peers(), CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        return *value = 0, CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

HCQ_API cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  return with_context([&](Context& context) -> CUresult {
    Context* peer = handles<Context>().find(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (&peer->device == &context.device) return CUDA_ERROR_INVALID_DEVICE;
    if (!peers()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint64_t bit = uint64_t{1} << peer->device.ordinal;
    return context.peers.fetch_or(bit, std::memory_order_relaxed) & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                                                        : CUDA_SUCCESS;
  });
}

HCQ_API cuCtxDisablePeerAccess(CUcontext handle) {
  return with_context([&](Context& context) -> CUresult {
    Context* peer = handles<Context>().find(handle);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t bit = uint64_t{1} << peer->device.ordinal;
    return context.peers.fetch_and(~bit, std::memory_order_relaxed) & bit ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

HCQ_API cuDeviceGetHostAtomicCapabilities(unsigned* out, const CUatomicOperation* operations, unsigned count,
                                          CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    return find_device(ordinal) ? capabilities_of(out, operations, count) : CUDA_ERROR_INVALID_DEVICE;
  });
}

HCQ_API cuDeviceGetP2PAtomicCapabilities(unsigned* out, const CUatomicOperation* operations, unsigned count,
                                         CUdevice ordinal, CUdevice peer) {
  return with_init([&]() -> CUresult {
    if (!find_device(ordinal) || !find_device(peer) || ordinal == peer) return CUDA_ERROR_INVALID_DEVICE;
    return capabilities_of(out, operations, count);
  });
}

}  // namespace cudacpu
