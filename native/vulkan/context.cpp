// Opening and closing a Vulkan device, and what physical devices are. Memory lives in memory.cpp.
#include "vulkan/context.hpp"

#include <cstring>

#include "vulkan/pipeline.hpp"

namespace hcq::vk {

std::atomic<int64_t> g_alive[static_cast<size_t>(Kind::count)];

namespace {
constexpr const char* kImport = "VK_EXT_external_memory_host";
constexpr const char* kCalibrated = "VK_EXT_calibrated_timestamps";
constexpr const char* kSubset = "VK_KHR_portability_subset";

bool has(const std::vector<ExtensionProperties>& found, const char* name) {
  for (const auto& each : found)
    if (!std::strcmp(each.name, name)) return true;
  return false;
}

std::vector<ExtensionProperties> extensions_of(Loaded& loaded, PhysicalDevice device) {
  uint32_t count = 0;
  check("vkEnumerateDeviceExtensionProperties",
        loaded.call.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr));
  std::vector<ExtensionProperties> found(count);
  check("vkEnumerateDeviceExtensionProperties",
        loaded.call.EnumerateDeviceExtensionProperties(device, nullptr, &count, found.data()));
  found.resize(count);
  return found;
}

bool knows_both_clocks(Loaded& loaded, PhysicalDevice device) {
  if (!loaded.call.GetPhysicalDeviceCalibrateableTimeDomainsEXT) return false;
  uint32_t count = 0, domains[16] = {};
  if (loaded.call.GetPhysicalDeviceCalibrateableTimeDomainsEXT(device, &count, nullptr) != kSuccess) return false;
  if (count > 16) count = 16;
  if (loaded.call.GetPhysicalDeviceCalibrateableTimeDomainsEXT(device, &count, domains) < kSuccess) return false;
  bool own = false, host = false;
  for (uint32_t i = 0; i < count; ++i) {
    own = own || domains[i] == kClockDevice;
    host = host || domains[i] == kClockMonotonic;
  }
  return own && host;
}

void find_family(Loaded& loaded, PhysicalDevice device, Facts* facts) {
  uint32_t count = 0;
  loaded.call.GetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<QueueFamily> families(count);
  loaded.call.GetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  facts->family = ~0u;
  facts->timestamp_bits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!(families[i].flags & kQueueCompute) || facts->family != ~0u) continue;
    facts->family = i;
    facts->timestamp_bits = families[i].timestamp_bits;
  }
}

// What a kernel may use, and this driver's own needs: switched on where it is there.
void switch_on(const Facts& has, Features2* plain, Features11* f11, Features12* f12, Features13* f13) {
  auto take = [](const auto& from, auto& to, auto index) { to.on[index] = from.on[index]; };
  for (auto i : {Features::kFloat64, Features::kInt64, Features::kInt16}) take(has.features, plain->features, i);
  for (auto i : {Features11::kStorage16, Features11::kUniformStorage16, Features11::kVariablePointersStorage,
                 Features11::kVariablePointers})
    take(has.features11, *f11, i);
  for (auto i :
       {Features12::kStorage8, Features12::kUniformStorage8, Features12::kBufferAtomics64, Features12::kSharedAtomics64,
        Features12::kFloat16, Features12::kInt8, Features12::kScalarLayout, Features12::kSubgroupTypes,
        Features12::kTimeline, Features12::kDeviceAddress, Features12::kMemoryModel, Features12::kMemoryModelDevice})
    take(has.features12, *f12, i);
  for (auto i : {Features13::kSubgroupSize, Features13::kFullSubgroups, Features13::kMaintenance4})
    take(has.features13, *f13, i);
}

void refuse_where_lacking(const Facts& f) {
  auto lacks = [&](const char* what) {
    throw Unavailable{
        std::string(f.properties.name) + " has no " + what,
        "Vulkan 1.3 with buffer device addresses, timeline semaphores, the Vulkan memory model and 64-bit "
        "integers is needed; a newer driver may have them"};
  };
  if (f.properties.api_version < version(1, 3)) lacks("Vulkan 1.3");
  if (f.family == ~0u) lacks("queue that computes");
  if (!f.features12.on[Features12::kDeviceAddress]) lacks("buffer device addresses");
  if (!f.features12.on[Features12::kTimeline]) lacks("timeline semaphores");
  if (!f.features12.on[Features12::kMemoryModel]) lacks("Vulkan memory model");
  if (!f.features.on[Features::kInt64]) lacks("64-bit integers in shaders");
}
}  // namespace

Facts facts_of(Loaded& loaded, PhysicalDevice device) {
  Facts facts{};
  auto& call = loaded.call;
  call.GetPhysicalDeviceProperties(device, &facts.properties);
  facts.max_allocation = facts.max_buffer = uint64_t{1} << 30;  // what every device has
  find_family(loaded, device, &facts);
  call.GetPhysicalDeviceMemoryProperties(device, &facts.memory);
  if (facts.properties.api_version < version(1, 3)) return facts;
  auto found = extensions_of(loaded, device);
  auto host = make<ExternalMemoryHostProperties>(kExternalMemoryHostProperties);
  auto m4 = make<Maintenance4Properties>(kMaintenance4Properties, has(found, kImport) ? &host : nullptr);
  auto m3 = make<Maintenance3Properties>(kMaintenance3Properties, &m4);
  facts.subgroups = make<SubgroupProperties>(kSubgroupProperties, &m3);
  facts.floats = make<FloatControls>(kFloatControlsProperties, &facts.subgroups);
  auto driver = make<DriverProperties>(kDriverProperties, &facts.floats);
  auto properties = make<Properties2>(kProperties2, &driver);
  call.GetPhysicalDeviceProperties2(device, &properties);
  facts.properties = properties.properties;
  facts.driver = driver.name;
  facts.driver_info = driver.info;
  facts.max_allocation = m3.max_allocation;
  facts.max_buffer = m4.max_buffer;
  facts.import_alignment = host.alignment;
  facts.calibrated = has(found, kCalibrated) && knows_both_clocks(loaded, device);
  auto f13 = make<Features13>(kVulkan13Features);
  auto f12 = make<Features12>(kVulkan12Features, &f13);
  auto f11 = make<Features11>(kVulkan11Features, &f12);
  auto features = make<Features2>(kFeatures2, &f11);
  call.GetPhysicalDeviceFeatures2(device, &features);
  facts.features = features.features;
  facts.features11 = f11;
  facts.features12 = f12;
  facts.features13 = f13;
  facts.features11.next = facts.features12.next = facts.features13.next = facts.floats.next = facts.subgroups.next =
      nullptr;
  return facts;
}

Context::Context(Loaded& loaded, PhysicalDevice physical, bool apart)
    : facts(facts_of(loaded, physical)), apart(apart) {
  refuse_where_lacking(facts);
  try {
    open(loaded, physical);
  } catch (...) {
    close();
    throw;
  }
}

void Context::open(Loaded& loaded, PhysicalDevice physical) {
  std::vector<const char*> names;
  auto found = extensions_of(loaded, physical);
  if (facts.import_alignment) names.push_back(kImport);
  if (facts.calibrated) names.push_back(kCalibrated);
  if (has(found, kSubset)) names.push_back(kSubset);
  auto f13 = make<Features13>(kVulkan13Features);
  auto f12 = make<Features12>(kVulkan12Features, &f13);
  auto f11 = make<Features11>(kVulkan11Features, &f12);
  auto features = make<Features2>(kFeatures2, &f11);
  switch_on(facts, &features, &f11, &f12, &f13);
  float priority = 1.0f;
  auto queues = make<DeviceQueueCreateInfo>(kDeviceQueueCreateInfo);
  queues.family = facts.family;
  queues.count = 1;
  queues.priorities = &priority;
  auto info = make<DeviceCreateInfo>(kDeviceCreateInfo, &features);
  info.queue_count = 1;
  info.queues = &queues;
  info.extension_count = static_cast<uint32_t>(names.size());
  info.extensions = names.data();
  check("vkCreateDevice", loaded.call.CreateDevice(physical, &info, nullptr, &device));
  made(Kind::device);
  load_device(call, [&](const char* name, bool optional) {
    Function function = loaded.call.GetDeviceProcAddr(device, name);
    if (!function && !optional)
      throw Unavailable{std::string(facts.properties.name) + " has no " + name, "a newer driver may have it"};
    return function;
  });
  call.GetDeviceQueue(device, facts.family, 0, &queue);
  // One piece of memory tells whether the host and the device mean the same by an address.
  uint64_t address = allocate(256, Use::shared);
  {
    std::lock_guard<std::mutex> guard(lock_);
    const Block* block = taken_.at(address).first;
    bool same = block->address == block->device_address;
    const MemoryType& type = facts.memory.types[type_of(~0u, Use::device)];
    unified = !apart && same && (type.flags & kMemoryHostVisible) && (type.flags & kMemoryHostCoherent);
  }
  free(address);
}

void Context::close() {
  if (generation != g_generation || closed_.exchange(true)) return;
  if (device && call.DestroyDevice) {
    {
      std::lock_guard<std::mutex> guard(objects_lock);
      for (Module* each : modules)
        if (!busy.load()) each->drop();
      modules.clear();
    }
  }
  let_go();
}

void Context::let_go() {
  // acq_rel: who destroys comes after all who looked
  if (generation == g_generation && holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
}

void Context::destroy() {
  if (!device || busy.load()) return;  // commands that still run use all of it
  if (call.DestroyDevice) {
    std::lock_guard<std::mutex> guard(lock_);
    taken_.clear();
    while (!blocks_.empty()) drop_block(blocks_.begin()->second.get());
    call.DestroyDevice(device, nullptr);
    gone(Kind::device);
  }
  device = nullptr;
}

}  // namespace hcq::vk
