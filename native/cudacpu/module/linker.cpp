// cuLink*: several texts of PTX to one module. What comes out is no cubin: it holds the texts, and is taken by
// cuModuleLoadData and cuLibraryLoadData here.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "api/entry.hpp"
#include "api/handle.hpp"
#include "api/log.hpp"
#include "module/jit.hpp"
#include "module/module.hpp"

namespace cudacpu {

namespace {

struct Linker {
  JitOptions jit;
  std::string texts, out;
  const Device* device = nullptr;
  std::mutex lock;  // guards the texts: threads may add at once
};

CUresult refuse(const char* name, const char* what) {
  log_line(CU_LOG_LEVEL_ERROR, std::string("cuLink: ") + (name ? name : "an input") + ": " + what +
                                   "; hcq.cudacpu links PTX and fat binaries with PTX in them");
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult add(CUlinkState handle, CUjitInputType type, const char* data, size_t size, const char* name, unsigned count,
             const CUjit_option* options, void** values) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Linker> linker = handles<Linker>().share(reinterpret_cast<void*>(handle));
    if (!linker) return CUDA_ERROR_INVALID_HANDLE;
    JitOptions own;
    if (CUresult result = own.read(count, options, values)) return result;
    if (!data || !size) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_JIT_INPUT_NVVM) return refuse(name, "NVVM IR (LTO)");
    if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) return refuse(name, "machine code of a GPU");
    if (type == CU_JIT_INPUT_FATBINARY) return refuse(name, "a fat binary as an input of the linker");
    std::lock_guard<std::mutex> hold(linker->lock);
    if (!linker->texts.empty()) linker->texts += '\0';
    linker->texts.append(data, strnlen(data, size));
    return CUDA_SUCCESS;
  });
}

}  // namespace

HCQ_API cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* out) {
  return with_context([&](Context& context) -> CUresult {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto linker = std::make_shared<Linker>();
    if (CUresult result = linker->jit.read(count, options, values)) return result;
    linker->device = &context.device;
    *out = static_cast<CUlinkState>(handles<Linker>().add(linker));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                         unsigned count, CUjit_option* options, void** values) {
  return add(state, type, static_cast<const char*>(data), size, name, count, options, values);
}

HCQ_API cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                         CUjit_option* options, void** values) {
  std::string data;
  CUresult result = with_init([&] { return read_file(path, &data); });
  return result ? result : add(state, type, data.data(), data.size(), path, count, options, values);
}

HCQ_API cuLinkComplete(CUlinkState handle, void** out, size_t* size) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Linker> linker = handles<Linker>().share(reinterpret_cast<void*>(handle));
    if (!linker) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    std::string made(kLinkedMagic, sizeof kLinkedMagic);
    {
      std::lock_guard<std::mutex> hold(linker->lock);
      uint64_t bytes = sizeof kLinkedMagic + sizeof bytes + linker->texts.size();
      made.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
      made += linker->texts;
    }
    auto began = std::chrono::steady_clock::now();
    std::shared_ptr<Image> image;
    CUresult result = load_image(made.data(), made.size(), *linker->device, &image, true);
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - began;
    linker->jit.write(image->info, image->errors, taken.count());
    if (result) return result;
    std::lock_guard<std::mutex> hold(linker->lock);
    linker->out = std::move(made);
    *out = linker->out.data();
    if (size) *size = linker->out.size();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuLinkDestroy(CUlinkState handle) {
  return with_init([&] {
    return handles<Linker>().remove(reinterpret_cast<void*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace cudacpu
