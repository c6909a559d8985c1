// Loading images and finding kernels in them (lane.hpp).
#include "cuda/lane.hpp"

namespace hcq::cuda {

namespace {
constexpr size_t kLog = 8192;
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER, and its size
}  // namespace

std::shared_ptr<Module> load_module(std::shared_ptr<Context> context, const std::string& image) {
  Current current(*context);
  std::string log(kLog, '\0');
  int options[] = {kErrorLog, kErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(kLog)};
  Handle module = nullptr;
  Result result = api().module_load(&module, image.c_str(), 2, options, values);
  if (result != kSuccess) {
    log.resize(log.find('\0') == std::string::npos ? log.size() : log.find('\0'));
    throw Failure{result, failure_of("cuModuleLoadDataEx", result) + (log.empty() ? "" : "\n" + log)};
  }
  ++g_held.modules;
  auto made = std::make_shared<Module>();
  made->context = std::move(context);
  made->module = module;
  return made;
}

Module::~Module() {
  if (generation != g_generation || !module) return;
  --g_held.modules;
  if (context->abandoned()) return;
  Current current(*context);
  api().module_unload(module);
}

uint32_t declared_local(const Module& module, const std::string& symbol) {
  Current current(*module.context);
  Handle function = nullptr;
  int bytes = 0;
  check("cuModuleGetFunction", api().module_function(&function, module.module, symbol.c_str()));
  check("cuFuncGetAttribute", api().function_attribute(&bytes, kDeclaredLocal, function));
  return static_cast<uint32_t>(bytes);
}

uint64_t groups_at_a_time(const Kernel& kernel, const uint32_t items[3]) {
  const Context& context = *kernel.module->context;
  Current current(context);
  int each = 0;  // a multiprocessor
  int all = static_cast<int>(items[0] * items[1] * items[2]);
  check("cuOccupancyMaxActiveBlocksPerMultiprocessor",
        api().groups_at_a_time(&each, kernel.function, all, kernel.local));
  return static_cast<uint64_t>(each) * static_cast<uint64_t>(context.facts().multiprocessors);
}

void allow_local(Module& module, Handle function, uint32_t bytes) {
  Current current(*module.context);
  std::lock_guard<std::mutex> guard(module.lock);
  int most = 0;
  check("cuFuncGetAttribute", api().function_attribute(&most, kMostGivenLocal, function));
  if (static_cast<uint32_t>(most) >= bytes) return;
  check("cuFuncSetAttribute", api().function_set(function, kMostGivenLocal, static_cast<int>(bytes)));
}

void point(const Kernel& kernel, const uint8_t* kernargs, void** out) {
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const uint8_t* at = kernel.typed ? kernargs + kernel.arguments[i].offset : kernargs + 8 + 8 * i;
    out[i] = const_cast<uint8_t*>(at);
  }
}

}  // namespace hcq::cuda
