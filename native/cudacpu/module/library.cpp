// cuLibrary*, cuKernel*: code that isn't bound to a context until it is used in one.
#include <chrono>
#include <cstring>

#include "api/api_launch.hpp"
#include "api/entry.hpp"
#include "api/handle.hpp"
#include "module/function.hpp"
#include "module/jit.hpp"
#include "module/module.hpp"

namespace cudacpu {

namespace {

std::shared_ptr<LibraryKernel> kernel_of(CUkernel handle) { return handles<LibraryKernel>().share(handle); }

CUresult load(CUlibrary* out, const void* data, const CUjit_option* options, void** values, unsigned count) {
  return with_init([&]() -> CUresult {
    JitOptions jit;
    if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = jit.read(count, options, values)) return result;
    Context* current = Context::current();
    Device* device = current ? &current->device : find_device(0);
    auto began = std::chrono::steady_clock::now();
    auto library = std::make_shared<Library>();
    data = unwrapped(data);
    library->data.assign(static_cast<const char*>(data), image_size(data));
    CUresult result = load_image(library->data.data(), library->data.size(), *device, &library->first);
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - began;
    jit.write(library->first->info, library->first->errors, taken.count());
    if (result) return result;
    library->unused = library->first;
    auto handle = static_cast<CUlibrary>(handles<Library>().add(library));
    for (const auto& kernel : library->first->kernels) {
      auto made = std::make_shared<LibraryKernel>();
      made->library = handle;
      made->name = kernel->name;
      made->image = library->first;
      made->kernel = kernel.get();
      library->kernels.push_back(static_cast<CUkernel>(handles<LibraryKernel>().add(made)));
    }
    *out = handle;
    return CUDA_SUCCESS;
  });
}

CUfunction function_named(const Module& module, const std::string& name) {
  for (const auto& [known, function] : module.functions) {
    if (known == name) return function;
  }
  return nullptr;
}

CUresult global(CUdeviceptr* at, size_t* bytes, CUlibrary handle, const char* name) {
  return with_context([&](Context& context) -> CUresult {
    if (!name || (!at && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Library> library = handles<Library>().share(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult result = library_module(*library, context, &module)) return result;
    const Global* found = module->image->global(name);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (at) *at = reinterpret_cast<CUdeviceptr>(found->at);
    if (bytes) *bytes = found->size;
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult library_module(Library& library, Context& context, std::shared_ptr<Module>* out) {
  std::shared_ptr<Image> image;
  {
    std::lock_guard<std::mutex> hold(library.lock);
    if ((*out = library.modules[context.id].lock())) return CUDA_SUCCESS;
    image = std::move(library.unused);
    library.unused = nullptr;
  }
  if (!image) {  // another context has the first: variables are each context's own
    CUresult result = load_image(library.data.data(), library.data.size(), context.device, &image);
    if (result) return result;
  }
  std::shared_ptr<Module> made = make_module(std::move(image), context);
  {
    std::lock_guard<std::mutex> hold(library.lock);
    std::weak_ptr<Module>& kept = library.modules[context.id];
    *out = kept.lock();
    if (!*out) kept = *out = made;
  }
  if (*out != made) unload_module(made);  // another thread was faster
  return CUDA_SUCCESS;
}

CUresult find_kernel_function(CUkernel handle, Context& context, CUfunction* out) {
  std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Library> library = handles<Library>().share(kernel->library);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  if (CUresult result = library_module(*library, context, &module)) return result;
  *out = function_named(*module, kernel->name);
  std::shared_ptr<Function> function = handles<Function>().share(*out);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = load_kernel(*module->image, *function->kernel)) return result;
  std::lock_guard<std::mutex> hold(kernel->lock);
  auto set = kernel->max_dynamic.find(context.device.ordinal);
  if (set != kernel->max_dynamic.end()) function->max_dynamic.store(set->second);
  return CUDA_SUCCESS;
}

CUresult find_function(CUfunction handle, std::shared_ptr<Function>* out) {
  *out = handles<Function>().share(handle);
  if (*out) return CUDA_SUCCESS;
  Context* context = Context::current();
  if (!context || !handles<LibraryKernel>().find(handle)) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  if (CUresult result = find_kernel_function(reinterpret_cast<CUkernel>(handle), *context, &function)) return result;
  *out = handles<Function>().share(function);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

HCQ_API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values, unsigned count,
                          CUlibraryOption*, void**, unsigned) {
  return load(library, code, options, values, count);
}

HCQ_API cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options, void** values,
                              unsigned count, CUlibraryOption*, void**, unsigned) {
  std::string data;
  CUresult result = with_init([&] { return read_file(path, &data); });
  return result ? result : load(library, data.c_str(), options, values, count);
}

HCQ_API cuLibraryUnload(CUlibrary handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Library> library = handles<Library>().remove(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    for (CUkernel kernel : library->kernels) handles<LibraryKernel>().remove(kernel);
    std::map<uint64_t, std::weak_ptr<Module>> modules;
    {
      std::lock_guard<std::mutex> hold(library->lock);
      modules.swap(library->modules);
    }
    for (const auto& [context, kept] : modules) {
      if (std::shared_ptr<Module> module = kept.lock()) unload_module(module);
    }
    return CUDA_SUCCESS;
  });
}

HCQ_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return with_init([&]() -> CUresult {
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Library> library = handles<Library>().share(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    for (CUkernel kernel : library->kernels) {
      std::shared_ptr<LibraryKernel> found = kernel_of(kernel);
      if (!found || found->name != name) continue;
      *out = kernel;
      return load_kernel(*found->image, *found->kernel);
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

HCQ_API cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Library> library = handles<Library>().share(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(library->kernels.size());
    return CUDA_SUCCESS;
  });
}

HCQ_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<Library> library = handles<Library>().share(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    if (!kernels && count) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < library->kernels.size(); ++i) kernels[i] = library->kernels[i];
    return CUDA_SUCCESS;
  });
}

HCQ_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  return with_context([&](Context& context) -> CUresult {
    std::shared_ptr<Library> library = handles<Library>().share(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    CUresult result = library_module(*library, context, &module);
    if (!result) *out = module->handle;
    return result;
  });
}

HCQ_API cuLibraryGetGlobal(CUdeviceptr* at, size_t* bytes, CUlibrary library, const char* name) {
  return global(at, bytes, library, name);
}

HCQ_API cuLibraryGetManaged(CUdeviceptr* at, size_t* bytes, CUlibrary library, const char* name) {
  return global(at, bytes, library, name);
}

HCQ_API cuLibraryGetUnifiedFunction(void**, CUlibrary, const char*) {
  return with_init([] { return CUDA_ERROR_NOT_FOUND; });  // PTX of today has none
}

HCQ_API cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return with_context([&](Context& context) -> CUresult {
    return out ? find_kernel_function(kernel, context, out) : CUDA_ERROR_INVALID_VALUE;
  });
}

HCQ_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = kernel->library;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuKernelGetName(const char** name, CUkernel handle) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->kernel->name.c_str();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    return kernel ? param_info(*kernel->kernel, index, offset, size) : CUDA_ERROR_INVALID_HANDLE;
  });
}

HCQ_API cuKernelGetParamCount(CUkernel handle, size_t* count) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = kernel->kernel->params.size();
    return CUDA_SUCCESS;
  });
}

HCQ_API cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel handle, CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    Attributes attributes = attributes_of(*kernel->kernel);
    std::lock_guard<std::mutex> hold(kernel->lock);
    auto set = kernel->max_dynamic.find(ordinal);
    if (set != kernel->max_dynamic.end()) attributes.max_dynamic = set->second;
    return get_attribute(*kernel->kernel, *device, attributes, which, value);
  });
}

HCQ_API cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel handle, CUdevice ordinal) {
  return with_init([&]() -> CUresult {
    std::shared_ptr<LibraryKernel> kernel = kernel_of(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    Device* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    Attributes attributes = attributes_of(*kernel->kernel);
    if (CUresult result = set_attribute(*kernel->kernel, *device, &attributes, which, value)) return result;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    std::lock_guard<std::mutex> hold(kernel->lock);
    kernel->max_dynamic[ordinal] = value;
    return CUDA_SUCCESS;
  });
}

HCQ_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache, CUdevice) {
  return with_init([&] { return kernel_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

}  // namespace cudacpu
