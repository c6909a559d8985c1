// cuLaunch*: checks, arguments, and the node that runs a grid.
#include "run/launch.hpp"

#include <chrono>
#include <cstring>

#include "api/entry.hpp"
#include "api/handle.hpp"
#include "module/function.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

namespace {

constexpr uint64_t kBriefNanoseconds = 20'000;

// What a launch's `extra` says of its arguments.
struct Extra {
  const uint8_t* buffer = nullptr;
  size_t size = 0;
};

CUresult read_extra(void** extra, Extra* out) {
  for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      out->buffer = static_cast<const uint8_t*>(extra[i + 1]);
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1]) {
      out->size = *static_cast<const size_t*>(extra[i + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult gather(const Kernel& kernel, const CUDA_KERNEL_NODE_PARAMS& p, uint8_t* to) {
  if (p.kernelParams && p.extra) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.params.empty()) return CUDA_SUCCESS;
  if (p.kernelParams) {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      if (!p.kernelParams[i]) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(to + kernel.params[i].offset, p.kernelParams[i], kernel.params[i].size);
    }
    return CUDA_SUCCESS;
  }
  if (!p.extra) return CUDA_ERROR_INVALID_VALUE;
  Extra extra;
  if (CUresult result = read_extra(p.extra, &extra)) return result;
  if (!extra.buffer || extra.size < kernel.param_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, extra.buffer, kernel.param_bytes);
  return CUDA_SUCCESS;
}

CUresult check_shape(const Function& f, const CUDA_KERNEL_NODE_PARAMS& p) {
  const Device& device = f.context->device;
  const Kernel& kernel = *f.kernel;
  auto most = [&](CUdevice_attribute which) { return static_cast<unsigned>(limit(device, which)); };
  if (!p.gridDimX || !p.gridDimY || !p.gridDimZ || !p.blockDimX || !p.blockDimY || !p.blockDimZ) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (p.gridDimX > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) || p.gridDimY > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
      p.gridDimZ > most(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (p.blockDimX > most(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) ||
      p.blockDimY > most(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) ||
      p.blockDimZ > most(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t threads = uint64_t{p.blockDimX} * p.blockDimY * p.blockDimZ;
  if (threads > most(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.max_threads && threads > kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t* required = kernel.required;
  if (required[0] && (p.blockDimX != required[0] || p.blockDimY != required[1] || p.blockDimZ != required[2])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (p.sharedMemBytes > static_cast<unsigned>(f.max_dynamic.load())) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.code.shared + p.sharedMemBytes > most(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check_attributes(const CUlaunchAttribute* attributes, unsigned count, bool* cooperative) {
  if (count && !attributes) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const auto& value = attributes[i].value;
    switch (attributes[i].id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        *cooperative = value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (value.clusterDim.x != 1 || value.clusterDim.y != 1 || value.clusterDim.z != 1) {
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        break;
      // These tell others of a launch in the middle of it, or change it from a kernel.
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        // The others are hints.
        if (attributes[i].id < 0 || attributes[i].id >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult launch(const CUDA_KERNEL_NODE_PARAMS& params, CUstream stream, const CUlaunchAttribute* attributes,
                unsigned count) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<const KernelNode> node;
    if (CUresult result = make_kernel(params, attributes, count, &node)) return result;
    std::shared_ptr<Stream> found;
    if (CUresult result = find_stream(context, stream, &found)) return result;
    // A function belongs to its context.
    if (&found->context != node->function->context) return CUDA_ERROR_INVALID_HANDLE;
    return submit(found, std::move(node));
  });
}

CUresult launch_kernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  return launch({function, gx, gy, gz, bx, by, bz, shared, params, extra, nullptr, nullptr}, stream, nullptr, 0);
}

CUresult launch_cooperative(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void** params) {
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  return launch({function, gx, gy, gz, bx, by, bz, shared, params, nullptr, nullptr, nullptr}, stream, &cooperative, 1);
}

CUresult launch_ex(const CUlaunchConfig* c, CUstream stream, CUfunction function, void** params, void** extra) {
  return launch({function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                 c->sharedMemBytes, params, extra, nullptr, nullptr},
                stream, c->attrs, c->numAttrs);
}

}  // namespace

KernelNode::KernelNode(std::shared_ptr<Function> of, const CUDA_KERNEL_NODE_PARAMS& given, const uint8_t* arguments,
                       bool together, std::vector<CUlaunchAttribute> with)
    : function(std::move(of)), cooperative(together), params(given), attributes(std::move(with)) {
  const Kernel& kernel = *function->kernel;
  if (kernel.param_bytes > sizeof inline_bytes_) bytes_.resize(kernel.param_bytes);
  if (kernel.params.size() > kInline) pointers_.resize(kernel.params.size());
  arguments_ = bytes_.empty() ? inline_bytes_ : bytes_.data();
  std::memcpy(arguments_, arguments, kernel.param_bytes);
  params.kernelParams = pointers_.empty() ? inline_params_ : pointers_.data();
  for (size_t i = 0; i < kernel.params.size(); ++i) params.kernelParams[i] = arguments_ + kernel.params[i].offset;
  params.extra = nullptr;
}

CUresult KernelNode::run(Context& context) const {
  const Kernel& kernel = *function->kernel;
  const auto& p = params;
  Launch launch{kernel.code,
                kernel.name.c_str(),
                &function->image->lines,
                &kernel.accesses,
                arguments_,
                {p.gridDimX, p.gridDimY, p.gridDimZ},
                {p.blockDimX, p.blockDimY, p.blockDimZ},
                p.sharedMemBytes,
                cooperative};
  auto began = std::chrono::steady_clock::now();
  Ending ending = run_grid(launch);
  auto taken = std::chrono::steady_clock::now() - began;
  uint64_t threads = uint64_t{p.gridDimX} * p.gridDimY * p.gridDimZ * p.blockDimX * p.blockDimY * p.blockDimZ;
  auto ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
  function->pace.store(std::max<uint64_t>(ns * 1024 / threads, 1), std::memory_order_relaxed);
  auto result = static_cast<CUresult>(ending.result);
  if (result) fail_context(context, result, ending.text);
  return result;
}

bool KernelNode::brief() const {
  // One that waits for others could wait for the caller.
  if (function->kernel->code.kind == Kind::threads) return false;
  uint64_t pace = function->pace.load(std::memory_order_relaxed);
  const auto& p = params;
  uint64_t threads = uint64_t{p.gridDimX} * p.gridDimY * p.gridDimZ * p.blockDimX * p.blockDimY * p.blockDimZ;
  return pace && threads < kBriefNanoseconds * 1024 / pace;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& given, const CUlaunchAttribute* attributes, unsigned count,
                     std::shared_ptr<const KernelNode>* out) {
  CUDA_KERNEL_NODE_PARAMS params = given;
  if (!params.func) params.func = reinterpret_cast<CUfunction>(params.kern);
  std::shared_ptr<Function> function;
  if (CUresult result = find_function(params.func, &function)) return result;
  bool cooperative = false;
  if (CUresult result = check_attributes(attributes, count, &cooperative)) return result;
  if (CUresult result = check_shape(*function, params)) return result;
  const Kernel& kernel = *function->kernel;
  if (cooperative) {
    const Device& device = function->context->device;
    auto threads = static_cast<int>(params.blockDimX * params.blockDimY * params.blockDimZ);
    auto most = static_cast<uint64_t>(resident_blocks(kernel, device, threads, params.sharedMemBytes)) *
                static_cast<uint64_t>(limit(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    if (uint64_t{params.gridDimX} * params.gridDimY * params.gridDimZ > most) {
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
  }
  uint8_t small[256];
  std::vector<uint8_t> large(kernel.param_bytes > sizeof small ? kernel.param_bytes : 0);
  uint8_t* arguments = large.empty() ? small : large.data();
  if (CUresult result = gather(kernel, params, arguments)) return result;
  *out = std::make_shared<const KernelNode>(std::move(function), params, arguments, cooperative,
                                            std::vector<CUlaunchAttribute>(attributes, attributes + count));
  return CUDA_SUCCESS;
}

HCQ_API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  return launch_kernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

HCQ_API cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  return launch_kernel(function, gx, gy, gz, bx, by, bz, shared, ptsz(stream), params, extra);
}

HCQ_API cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                  unsigned bz, unsigned shared, CUstream stream, void** params) {
  return launch_cooperative(function, gx, gy, gz, bx, by, bz, shared, stream, params);
}

HCQ_API cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                       unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params) {
  return launch_cooperative(function, gx, gy, gz, bx, by, bz, shared, ptsz(stream), params);
}

HCQ_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  return config ? launch_ex(config, config->hStream, function, params, extra) : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  return config ? launch_ex(config, ptsz(config->hStream), function, params, extra) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cudacpu
