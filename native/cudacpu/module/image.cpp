// Asking the compiler, and what it calls back.
#include "module/image.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "api/log.hpp"
#include "memory/memory.hpp"
#include "stream/threads.hpp"

namespace cudacpu {

namespace {

using CompileFn = int (*)(Image*, const CompileRequest*);
using LoadKernelFn = int (*)(Image*, uint64_t handle, const char* name);
using UnloadFn = void (*)(uint64_t handle);

// Set when the library is installed, taken away before the interpreter ends. seq_cst: both seldom.
std::atomic<CompileFn> g_compile{nullptr};
std::atomic<LoadKernelFn> g_load_kernel{nullptr};
std::atomic<UnloadFn> g_unload{nullptr};

// "Fat binaries" of nvcc: what is known of them is in the toolkit's fatbinary_section.h.
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatMagic = 0xba55ed50;

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;  // after the header
};

struct Wrapper {
  uint32_t magic, version;
  const void* data;
};

template <class T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

Image::~Image() {
  UnloadFn unload = g_unload.load();
  if (handle && unload) into_python([&] { unload(handle); });
}

const Kernel* Image::kernel(const std::string& name) const {
  for (const auto& kernel : kernels) {
    if (kernel->name == name) return kernel.get();
  }
  return nullptr;
}

const Global* Image::global(const std::string& name) const {
  for (const Global& global : globals) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

// A Python process that was started from one with the library (LD_LIBRARY_PATH, hcq.cudacpu.child_environment) finds
// the library by itself; nobody has given it a compiler. The interpreter is asked for by name: the library has none in
// it.
void ask_python() {
  using Ensure = int (*)();
  using Release = void (*)(int);
  using Run = int (*)(const char*);
  auto is_initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  auto ensure = reinterpret_cast<Ensure>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  auto release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  auto run = reinterpret_cast<Run>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
  if (!is_initialized || !ensure || !release || !run || !is_initialized()) return;
  int state = ensure();
  run("import hcq.cudacpu as _hcq_cudacpu\n_hcq_cudacpu.install()\ndel _hcq_cudacpu\n");
  release(state);
}

CUresult compile(const void* data, size_t size, const Device& device, bool only_compile, Image& image) {
  CompileFn compiler = g_compile.load();
  if (!compiler) {
    into_python(ask_python);
    compiler = g_compile.load();
  }
  if (!compiler) {
    image.errors = "hcq.cudacpu: nobody compiles PTX here: the library was not loaded by hcq.cudacpu.install()";
    return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  }
  CompileRequest request{data,       size,         static_cast<uint32_t>(device.capability),
                         checking(), only_compile, device.memory_bytes};
  return static_cast<CUresult>(into_python([&] { return compiler(&image, &request); }));
}

CUresult load_kernel(Image& image, const Kernel& kernel) {
  if (kernel.loaded.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  LoadKernelFn load = g_load_kernel.load();
  if (!load) return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  auto result = static_cast<CUresult>(into_python([&] { return load(&image, image.handle, kernel.name.c_str()); }));
  if (result) {
    std::lock_guard<std::mutex> hold(image.lock);
    log_line(CU_LOG_LEVEL_ERROR, image.errors.empty() ? "a kernel can't be compiled" : image.errors);
  }
  return result;
}

const void* unwrapped(const void* data) {
  return read<uint32_t>(data) == kWrapperMagic ? read<Wrapper>(data).data : data;
}

size_t image_size(const void* data) {
  auto bytes = static_cast<const uint8_t*>(data);
  // A text may be shorter than a header: byte by byte until it differs.
  auto begins = [&](const void* with, size_t size) {
    return std::strncmp(static_cast<const char*>(data), static_cast<const char*>(with), size) == 0;
  };
  const uint32_t fat = kFatMagic;
  if (begins(&fat, 4)) {
    auto header = read<FatHeader>(data);
    return header.header_size + header.size;
  }
  if (begins(kLinkedMagic, sizeof kLinkedMagic)) return read<uint64_t>(bytes + sizeof kLinkedMagic);
  // Of a cubin the first bytes are enough: it is refused. Its own words on how long it is may lead astray.
  if (begins("\x7f"
             "ELF",
             4))
    return 4;
  return std::strlen(static_cast<const char*>(data));
}

#define HCQ_PUBLIC __attribute__((visibility("default")))

extern "C" {

HCQ_PUBLIC void hcq_cuda_install(CompileFn compiler, LoadKernelFn load_kernel, UnloadFn unload) {
  g_compile.store(compiler);
  g_load_kernel.store(load_kernel);
  g_unload.store(unload);
}

HCQ_PUBLIC void hcq_cuda_set_handle(Image* image, uint64_t handle) { image->handle = handle; }

HCQ_PUBLIC void hcq_cuda_add_kernel(Image* image, const KernelInfo* info) {
  auto kernel = std::make_unique<Kernel>();
  kernel->name = info->name;
  kernel->code = {static_cast<Kind>(info->kind), info->entry,        info->shared, info->local,
                  info->scratch_group,           info->scratch_item, checking()};
  for (uint32_t i = 0; i < info->param_count; ++i) {
    kernel->params.push_back({info->params[2 * i], info->params[2 * i + 1]});
  }
  kernel->param_bytes = kernel->params.empty() ? 0 : kernel->params.back().offset + kernel->params.back().size;
  kernel->registers = info->registers;
  kernel->max_threads = info->max_threads;
  std::memcpy(kernel->required, info->required, sizeof kernel->required);
  kernel->accesses.assign(info->accesses, info->accesses + info->access_bytes);
  kernel->loaded.store(info->entry != nullptr, std::memory_order_release);
  image->kernels.push_back(std::move(kernel));
}

HCQ_PUBLIC void hcq_cuda_add_global(Image* image, const char* name, void* at, size_t size, int constant) {
  image->globals.push_back({name, at, size, constant != 0});
}

HCQ_PUBLIC void hcq_cuda_add_file(Image* image, const char* name) { image->lines.files.emplace_back(name); }

// `rows` are triples: from which line of the PTX on, which file, which line of it. In order.
HCQ_PUBLIC void hcq_cuda_add_lines(Image* image, const uint32_t* rows, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) image->lines.from.push_back({rows[3 * i], rows[3 * i + 1], rows[3 * i + 2]});
}

// The code of a kernel that was added without. Threads may tell of one at a time: the first one counts.
HCQ_PUBLIC void hcq_cuda_set_code(Image* image, const KernelInfo* info) {
  std::lock_guard<std::mutex> hold(image->lock);
  for (const auto& kernel : image->kernels) {
    if (kernel->name != info->name || kernel->loaded.load(std::memory_order_relaxed))
      continue;  // relaxed: under the lock
    kernel->code.kind = static_cast<Kind>(info->kind);
    kernel->code.entry = info->entry;
    kernel->code.scratch_group = info->scratch_group;
    kernel->code.scratch_item = info->scratch_item;
    kernel->loaded.store(true, std::memory_order_release);
  }
}

// `rows` are pairs: from which byte of the code at `begin` on, which line of the PTX. In order; the last one ends it.
HCQ_PUBLIC void hcq_cuda_add_code(Image* image, uint64_t begin, const uint32_t* rows, uint32_t count) {
  Lines::Code code{begin, {}};
  for (uint32_t i = 0; i < count; ++i) code.made.push_back({rows[2 * i], rows[2 * i + 1]});
  image->lines.add(std::move(code));
}

HCQ_PUBLIC void hcq_cuda_add_log(Image* image, int is_error, const char* text) {
  std::lock_guard<std::mutex> hold(image->lock);
  std::string& log = is_error ? image->errors : image->info;
  if (!log.empty()) log += '\n';
  log += text;
}

}  // extern "C"

}  // namespace cudacpu
