// cuModule*: loading code into a context, and finding what is in it.
#include "module/module.hpp"

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "api/api_launch.hpp"
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "api/log.hpp"
#include "memory/memory.hpp"
#include "module/function.hpp"
#include "module/jit.hpp"

namespace cudacpu {

namespace {

CUresult load(CUmodule* out, const void* data, unsigned count, const CUjit_option* options, void** values) {
  return with_context([&](Context& context) -> CUresult {
    JitOptions jit;
    if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = jit.read(count, options, values)) return result;
    auto began = std::chrono::steady_clock::now();
    std::shared_ptr<Image> image;
    CUresult result = load_image(data, context.device, &image);
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - began;
    jit.write(image->info, image->errors, taken.count());
    if (!result) *out = make_module(std::move(image), context)->handle;
    return result;
  });
}

// What goes with a module whose handle has ended.
void forget(const Module& module) {
  for (const auto& [name, function] : module.functions) handles<Function>().remove(function);
  for (const Global& global : module.image->globals) remove_range(reinterpret_cast<uint64_t>(global.at));
}

// The modules of a context go with it.
const bool hooked = [] {
  reset_hooks().push_back([](Context& context) {
    for (const auto& module : handles<Module>().remove_if([&](Module& one) { return one.context == &context; })) {
      forget(*module);
    }
  });
  return true;
}();

}  // namespace

Function::Function(std::shared_ptr<Image> from, const Kernel* of, Context* in)
    : image(std::move(from)), kernel(of), context(in), max_dynamic(attributes_of(*of).max_dynamic) {}

CUresult load_image(const void* data, size_t size, const Device& device, std::shared_ptr<Image>* out,
                    bool only_compile) {
  auto image = std::make_shared<Image>();
  *out = image;
  CUresult result = compile(data, size, device, only_compile, *image);
  if (result) log_line(CU_LOG_LEVEL_ERROR, image->errors.empty() ? "a module can't be loaded" : image->errors);
  return result;
}

CUresult load_image(const void* data, const Device& device, std::shared_ptr<Image>* out, bool only_compile) {
  data = unwrapped(data);
  return load_image(data, image_size(data), device, out, only_compile);
}

std::shared_ptr<Module> make_module(std::shared_ptr<Image> image, Context& context) {
  auto module = std::make_shared<Module>();
  module->image = image;
  module->context = &context;
  module->handle = static_cast<CUmodule>(handles<Module>().add(module));
  for (const auto& kernel : image->kernels) {
    auto function = std::make_shared<Function>(image, kernel.get(), &context);
    function->module = module->handle;
    module->functions.emplace_back(kernel->name, static_cast<CUfunction>(handles<Function>().add(function)));
  }
  // What a module's variables are is asked of their addresses too (cuPointerGetAttribute), and copies look there.
  for (const Global& global : image->globals) {
    add_range(std::make_shared<Range>(reinterpret_cast<uint64_t>(global.at), global.size, Memory::global, &context,
                                      &context.device));
  }
  return module;
}

void unload_module(const std::shared_ptr<Module>& module) {
  if (handles<Module>().remove(module->handle, module.get())) forget(*module);
}

CUresult read_file(const char* path, std::string* data) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream all;
  all << file.rdbuf();
  *data = all.str();
  return CUDA_SUCCESS;
}

HCQ_API cuModuleLoad(CUmodule* module, const char* path) {
  std::string data;
  CUresult result = with_context([&](Context&) { return read_file(path, &data); });
  return result ? result : load(module, data.c_str(), 0, nullptr, nullptr);
}

HCQ_API cuModuleLoadData(CUmodule* module, const void* image) { return load(module, image, 0, nullptr, nullptr); }

HCQ_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  return load(module, image, count, options, values);
}

HCQ_API cuModuleLoadFatBinary(CUmodule* module, const void* image) { return load(module, image, 0, nullptr, nullptr); }

HCQ_API cuModuleUnload(CUmodule handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Module> module = handles<Module>().remove(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    forget(*module);
    return CUDA_SUCCESS;
  });
}

HCQ_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return with_init([&]() -> CUresult {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return with_context([&](Context&) -> CUresult {
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module = handles<Module>().share(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& [known, function] : module->functions) {
      if (known != name) continue;
      *out = function;
      return load_kernel(*module->image, *module->image->kernel(known));
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

HCQ_API cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Module> module = handles<Module>().share(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(module->functions.size());
    return CUDA_SUCCESS;
  });
}

HCQ_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Module> module = handles<Module>().share(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (!functions && count) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < module->functions.size(); ++i) {
      functions[i] = module->functions[i].second;
      if (CUresult result = load_kernel(*module->image, *module->image->kernels[i])) return result;
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuModuleGetGlobal_v2(CUdeviceptr* at, size_t* bytes, CUmodule handle, const char* name) {
  return with_context([&](Context&) -> CUresult {
    if (!name || (!at && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module = handles<Module>().share(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    const Global* global = module->image->global(name);
    if (!global) return CUDA_ERROR_NOT_FOUND;
    if (at) *at = reinterpret_cast<CUdeviceptr>(global->at);
    if (bytes) *bytes = global->size;
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
