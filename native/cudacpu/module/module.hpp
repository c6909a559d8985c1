// Modules, functions, libraries and their kernels: what the API's handles of code mean. What does not live here:
// compiled code (image.hpp), launching it (launch.hpp).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/context.hpp"
#include "module/image.hpp"

namespace cudacpu {

// A kernel in a context: CUfunction. Threads may share it.
struct Function {
  const std::shared_ptr<Image> image;
  const Kernel* const kernel;
  Context* const context;
  CUmodule module = nullptr;
  std::atomic<int> max_dynamic;  // bytes of dynamic shared memory that a launch may ask for
  std::atomic<int> carveout{-1}, cache{0};
  // Nanoseconds that 1024 threads took last; 0: it has not run. A hint, so no order is needed.
  mutable std::atomic<uint64_t> pace{0};

  Function(std::shared_ptr<Image> image, const Kernel* kernel, Context* context);
};

// CUmodule: an image in a context.
struct Module {
  CUmodule handle = nullptr;
  std::shared_ptr<Image> image;
  Context* context;
  std::vector<std::pair<std::string, CUfunction>> functions;
};

// A kernel of a library, in whatever context is current: CUkernel.
struct LibraryKernel {
  CUlibrary library;
  std::string name;
  std::shared_ptr<Image> image;  // one of the library's, for what is the same in all
  const Kernel* kernel;
  std::mutex lock;                 // guards what follows
  std::map<int, int> max_dynamic;  // by device, where it was set
};

// CUlibrary: loaded into a context when it is first used there. Each has its own variables.
struct Library {
  std::string data;  // for contexts to come
  std::shared_ptr<Image> first;
  std::vector<CUkernel> kernels;
  std::mutex lock;                // guards what follows
  std::shared_ptr<Image> unused;  // `first` until a context takes it
  // By context's id. They go with their contexts: a handle could be another module's by now.
  std::map<uint64_t, std::weak_ptr<Module>> modules;
};

// Loads PTX, a fat binary or what was linked, for a device; `image` is filled as far as it came. Logs why it can't.
CUresult load_image(const void* data, const Device& device, std::shared_ptr<Image>* image, bool only_compile = false);
CUresult load_image(const void* data, size_t size, const Device& device, std::shared_ptr<Image>* image,
                    bool only_compile = false);
std::shared_ptr<Module> make_module(std::shared_ptr<Image> image, Context& context);
// Ends a module and its functions, unless that was done. Launches that have not ended keep what they need.
void unload_module(const std::shared_ptr<Module>& module);

// A whole file, for the calls that take names. A zero byte is added. CUDA_ERROR_FILE_NOT_FOUND.
CUresult read_file(const char* path, std::string* data);

// What a CUfunction means; also a CUkernel that was cast to one, in the current context. CUDA_ERROR_INVALID_HANDLE.
CUresult find_function(CUfunction handle, std::shared_ptr<Function>* out);
CUresult find_kernel_function(CUkernel handle, Context& context, CUfunction* out);
// The library's module in a context; loads it there if need be.
CUresult library_module(Library& library, Context& context, std::shared_ptr<Module>* out);

}  // namespace cudacpu
