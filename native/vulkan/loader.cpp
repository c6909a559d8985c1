// Opening the loader, making the process's instances, and what the validation layer says.
#include "vulkan/loader.hpp"

#include <dlfcn.h>

#include <cstring>
#include <mutex>

#include "core/base.hpp"

namespace hcq::vk {

namespace {
constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr const char* kDebugUtils = "VK_EXT_debug_utils";
constexpr const char* kPortability = "VK_KHR_portability_enumeration";
constexpr size_t kMostMessages = 100;

using GetInstanceProcAddr = Function (*)(Instance, const char*);
struct GlobalTable {
  HCQ_VK_GLOBAL(HCQ_VK_POINTER)
};

struct State {
  std::mutex lock;  // making instances; held while drivers are loaded
  GetInstanceProcAddr get = nullptr;
  GlobalTable call;
  Loaded plain, validating;
  std::mutex messages_lock;  // a leaf: the layer calls from any thread
  std::vector<std::string> messages;
};
// Never destroyed: threads of implementations may still run when the process ends.
State& state() {
  static auto* made = new State;
  return *made;
}

Bool said(uint32_t, uint32_t, const DebugMessage* message, void*) {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.messages_lock);
  if (s.messages.size() < kMostMessages) s.messages.emplace_back(message->text ? message->text : "");
  return 0;
}

// Under the state's lock. Throws Unavailable.
void open_loader(State& s) {
  if (s.get) return;
  void* library = nullptr;
  for (const char* name : {"libvulkan.so.1", "libvulkan.1.dylib", "libMoltenVK.dylib"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Unavailable{
        "there is no Vulkan loader here (libvulkan.so.1)",
        "apt install libvulkan1, and a driver: mesa-vulkan-drivers has those of Mesa, and one for the CPU"};
  auto get = reinterpret_cast<GetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (!get) throw Unavailable{"the Vulkan loader here has no vkGetInstanceProcAddr", "install it anew"};
#define HCQ_VK_GLOBAL_LOAD(result, name, arguments) \
  s.call.name = reinterpret_cast<decltype(s.call.name)>(get(nullptr, "vk" #name));
  HCQ_VK_GLOBAL(HCQ_VK_GLOBAL_LOAD)
  if (!s.call.CreateInstance || !s.call.EnumerateInstanceVersion)
    throw Unavailable{"the Vulkan loader here knows only Vulkan 1.0", "Vulkan 1.3 is needed"};
  s.get = get;
}

bool has_layer(State& s) {
  uint32_t count = 0;
  if (s.call.EnumerateInstanceLayerProperties(&count, nullptr) != kSuccess) return false;
  std::vector<LayerProperties> layers(count);
  if (s.call.EnumerateInstanceLayerProperties(&count, layers.data()) < kSuccess) return false;
  for (uint32_t i = 0; i < count && i < layers.size(); ++i)
    if (!std::strcmp(layers[i].name, kValidationLayer)) return true;
  return false;
}

bool has_extension(State& s, const char* layer, const char* wanted) {
  uint32_t count = 0;
  if (s.call.EnumerateInstanceExtensionProperties(layer, &count, nullptr) != kSuccess) return false;
  std::vector<ExtensionProperties> found(count);
  if (s.call.EnumerateInstanceExtensionProperties(layer, &count, found.data()) < kSuccess) return false;
  for (uint32_t i = 0; i < count && i < found.size(); ++i)
    if (!std::strcmp(found[i].name, wanted)) return true;
  return false;
}

void load(State& s, Loaded& into) {
  auto get = [&](const char* name, bool optional) {
    Function found = s.get(into.instance, name);
    if (!found && !optional)
      throw Unavailable{std::string("the Vulkan loader here has no ") + name, "Vulkan 1.3 is needed"};
    return found;
  };
  InstanceTable& table = into.call;
  HCQ_VK_INSTANCE(HCQ_VK_LOAD)
  HCQ_VK_INSTANCE_OPTIONAL(HCQ_VK_LOAD_OPTIONAL)
}

void listen(Loaded& into) {
  if (!into.call.CreateDebugUtilsMessengerEXT) return;
  auto info = make<DebugMessengerCreateInfo>(kDebugUtilsMessengerCreateInfo);
  info.severities = kSeverityWarning | kSeverityError;
  info.kinds = kMessageValidation;
  info.callback = said;
  Handle messenger = 0;
  check("vkCreateDebugUtilsMessengerEXT",
        into.call.CreateDebugUtilsMessengerEXT(into.instance, &info, nullptr, &messenger));
}

void make_instance(State& s, Loaded& into, bool validation) {
  std::vector<const char*> layers, extensions;
  if (validation) {
    if (!has_layer(s))
      throw Unavailable{"HCQ_VULKAN_VALIDATION=1, and the validation layer is not installed",
                        "apt install vulkan-validationlayers"};
    layers.push_back(kValidationLayer);
    extensions.push_back(kDebugUtils);
  }
  auto application = make<ApplicationInfo>(kApplicationInfo);
  application.application = application.engine = "hcq";
  application.api_version = version(1, 3);
  auto info = make<InstanceCreateInfo>(kInstanceCreateInfo);
  if (has_extension(s, nullptr, kPortability)) {  // drivers that are layers over another interface, as MoltenVK
    extensions.push_back(kPortability);
    info.flags = kEnumeratePortability;
  }
  info.application = &application;
  info.layer_count = static_cast<uint32_t>(layers.size());
  info.layers = layers.data();
  info.extension_count = static_cast<uint32_t>(extensions.size());
  info.extensions = extensions.data();
  int32_t result = s.call.CreateInstance(&info, nullptr, &into.instance);
  if (result != kSuccess) {
    into.instance = nullptr;
    throw Unavailable{std::string("no Vulkan driver here works (vkCreateInstance: ") + result_name(result) + ")",
                      "apt install mesa-vulkan-drivers, or the GPU's own driver; VK_ICD_FILENAMES names the files that "
                      "describe drivers"};
  }
  try {
    load(s, into);
    if (validation) listen(into);
    uint32_t count = 0;
    result = into.call.EnumeratePhysicalDevices(into.instance, &count, nullptr);
    std::vector<PhysicalDevice> devices(count);
    if (result == kSuccess && count) result = into.call.EnumeratePhysicalDevices(into.instance, &count, devices.data());
    devices.resize(count);
    if (result < kSuccess || devices.empty())
      throw Unavailable{result < kSuccess
                            ? std::string("the Vulkan drivers here name no device (") + result_name(result) + ")"
                            : "the Vulkan drivers here have no device",
                        "apt install mesa-vulkan-drivers for one on the CPU; VK_ICD_FILENAMES names the files that "
                        "describe drivers"};
    into.validates = validation;
    into.devices = std::move(devices);
  } catch (...) {
    if (into.call.DestroyInstance) into.call.DestroyInstance(into.instance, nullptr);
    into.instance = nullptr;
    throw;
  }
}
}  // namespace

const char* result_name(int32_t result) {
  switch (result) {
#define HCQ_VK_NAME(number, name) \
  case number:                    \
    return "VK_" name
    HCQ_VK_NAME(0, "SUCCESS");
    HCQ_VK_NAME(1, "NOT_READY");
    HCQ_VK_NAME(2, "TIMEOUT");
    HCQ_VK_NAME(5, "INCOMPLETE");
    HCQ_VK_NAME(-1, "ERROR_OUT_OF_HOST_MEMORY");
    HCQ_VK_NAME(-2, "ERROR_OUT_OF_DEVICE_MEMORY");
    HCQ_VK_NAME(-3, "ERROR_INITIALIZATION_FAILED");
    HCQ_VK_NAME(-4, "ERROR_DEVICE_LOST");
    HCQ_VK_NAME(-5, "ERROR_MEMORY_MAP_FAILED");
    HCQ_VK_NAME(-6, "ERROR_LAYER_NOT_PRESENT");
    HCQ_VK_NAME(-7, "ERROR_EXTENSION_NOT_PRESENT");
    HCQ_VK_NAME(-8, "ERROR_FEATURE_NOT_PRESENT");
    HCQ_VK_NAME(-9, "ERROR_INCOMPATIBLE_DRIVER");
    HCQ_VK_NAME(-10, "ERROR_TOO_MANY_OBJECTS");
    HCQ_VK_NAME(-12, "ERROR_FRAGMENTED_POOL");
    HCQ_VK_NAME(-13, "ERROR_UNKNOWN");
    HCQ_VK_NAME(-1000072003, "ERROR_INVALID_EXTERNAL_HANDLE");
    default:
      return "an error without a name here";
  }
}

void check(const char* function, int32_t result) {
  if (result == kSuccess) return;
  throw Failure{std::string(function) + ": " + result_name(result) + " (" + std::to_string(result) + ")", result};
}

Loaded& instance(bool validation) {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  open_loader(s);
  Loaded& wanted = validation ? s.validating : s.plain;
  if (!wanted.instance) make_instance(s, wanted, validation);
  return wanted;
}

bool has_validation() {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  try {
    open_loader(s);
  } catch (const Unavailable&) {
    return false;
  }
  return has_layer(s);
}

std::vector<std::string> take_messages() {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.messages_lock);
  std::vector<std::string> taken;
  taken.swap(s.messages);
  return taken;
}

}  // namespace hcq::vk
