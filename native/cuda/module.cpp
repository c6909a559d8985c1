// Loading images and finding kernels in them (lane.hpp).
#include "cuda/lane.hpp"

namespace hcq::cuda {

namespace {
constexpr size_t kLog = 8192;
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER, and its size
constexpr const char* kTooOld = "a driver for CUDA 12.4 or later says what cubins and fat binaries have in them";

// What to do about images that a driver won't have, in which it says nothing of the device or itself.
std::string hint(const Facts& facts, Result result) {
  std::string capability = std::to_string(facts.major) + "." + std::to_string(facts.minor);
  if (result == kNoBinary)
    return "; there is nothing in it for compute capability " + capability + ", which " + facts.name +
           " has: PTX of that or an earlier one runs";
  if (result == kUnsupportedPtx)
    return "; the driver is for CUDA " + version_words(facts.driver_version) +
           ": update the driver, or have PTX of an earlier toolkit, or a cubin";
  return "";
}
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
    throw Failure{result, failure_of("cuModuleLoadDataEx", result) + hint(context->facts(), result) +
                              (log.empty() ? "" : "\n" + log)};
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

std::pair<Address, size_t> variable_of(const Module& module, const std::string& symbol) {
  Current current(*module.context);
  Address at = 0;
  size_t bytes = 0;
  Result result = api().module_global(&at, &bytes, module.module, symbol.c_str());
  if (result == kNotFound) return {0, 0};
  check("cuModuleGetGlobal", result);
  return {at, bytes};
}

std::vector<std::string> kernels_of(const Module& module) {
  Current current(*module.context);
  if (!api().module_count || !api().module_functions || !api().function_name) throw Failure{kNotSupported, kTooOld};
  unsigned count = 0;
  check("cuModuleGetFunctionCount", api().module_count(&count, module.module));
  std::vector<Handle> functions(count);
  check("cuModuleEnumerateFunctions", api().module_functions(functions.data(), count, module.module));
  std::vector<std::string> names;
  for (Handle function : functions) {
    const char* name = nullptr;
    check("cuFuncGetName", api().function_name(&name, function));
    names.push_back(name);
  }
  return names;
}

std::vector<uint32_t> parameters_of(const Module& module, const std::string& symbol) {
  Current current(*module.context);
  if (!api().function_parameter) throw Failure{kNotSupported, kTooOld};
  Handle function = nullptr;
  check("cuModuleGetFunction", api().module_function(&function, module.module, symbol.c_str()));
  std::vector<uint32_t> sizes;
  size_t offset = 0, size = 0;
  Result result;
  while ((result = api().function_parameter(function, sizes.size(), &offset, &size)) == kSuccess)
    sizes.push_back(static_cast<uint32_t>(size));
  if (result != kInvalidValue) check("cuFuncGetParamInfo", result);  // that there are no more
  return sizes;
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
    out[i] = const_cast<uint8_t*>(kernargs + kernel.arguments[i].offset);
  }
}

}  // namespace hcq::cuda
