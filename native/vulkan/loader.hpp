// The Vulkan loader, opened at run time, and the functions that are used, by name. Nothing is linked.
#pragma once
#include <string>
#include <vector>

#include "core/unavailable.hpp"
#include "vulkan/api.hpp"

namespace hcq::vk {

// X(type of the result, name without vk, arguments)
#define HCQ_VK_GLOBAL(X)                                                          \
  X(int32_t, CreateInstance, (const InstanceCreateInfo*, const void*, Instance*)) \
  X(int32_t, EnumerateInstanceVersion, (uint32_t*))                               \
  X(int32_t, EnumerateInstanceLayerProperties, (uint32_t*, LayerProperties*))     \
  X(int32_t, EnumerateInstanceExtensionProperties, (const char*, uint32_t*, ExtensionProperties*))

#define HCQ_VK_INSTANCE(X)                                                                                       \
  X(void, DestroyInstance, (Instance, const void*))                                                              \
  X(int32_t, EnumeratePhysicalDevices, (Instance, uint32_t*, PhysicalDevice*))                                   \
  X(void, GetPhysicalDeviceProperties, (PhysicalDevice, Properties*))                                            \
  X(void, GetPhysicalDeviceProperties2, (PhysicalDevice, Properties2*))                                          \
  X(void, GetPhysicalDeviceFeatures2, (PhysicalDevice, Features2*))                                              \
  X(void, GetPhysicalDeviceQueueFamilyProperties, (PhysicalDevice, uint32_t*, QueueFamily*))                     \
  X(void, GetPhysicalDeviceMemoryProperties, (PhysicalDevice, MemoryProperties*))                                \
  X(int32_t, EnumerateDeviceExtensionProperties, (PhysicalDevice, const char*, uint32_t*, ExtensionProperties*)) \
  X(int32_t, CreateDevice, (PhysicalDevice, const DeviceCreateInfo*, const void*, LogicalDevice*))               \
  X(Function, GetDeviceProcAddr, (LogicalDevice, const char*))

// Functions of extensions: null where the extension is not there.
#define HCQ_VK_INSTANCE_OPTIONAL(X)                                                                \
  X(int32_t, GetPhysicalDeviceCalibrateableTimeDomainsEXT, (PhysicalDevice, uint32_t*, uint32_t*)) \
  X(int32_t, CreateDebugUtilsMessengerEXT, (Instance, const DebugMessengerCreateInfo*, const void*, Handle*))

#define HCQ_VK_DEVICE(X)                                                                                           \
  X(void, DestroyDevice, (LogicalDevice, const void*))                                                             \
  X(int32_t, DeviceWaitIdle, (LogicalDevice))                                                                      \
  X(void, GetDeviceQueue, (LogicalDevice, uint32_t, uint32_t, DeviceQueue*))                                       \
  X(int32_t, QueueSubmit, (DeviceQueue, uint32_t, const SubmitInfo*, Handle))                                      \
  X(int32_t, AllocateMemory, (LogicalDevice, const MemoryAllocateInfo*, const void*, Handle*))                     \
  X(void, FreeMemory, (LogicalDevice, Handle, const void*))                                                        \
  X(int32_t, MapMemory, (LogicalDevice, Handle, uint64_t, uint64_t, uint32_t, void**))                             \
  X(int32_t, CreateBuffer, (LogicalDevice, const BufferCreateInfo*, const void*, Handle*))                         \
  X(void, DestroyBuffer, (LogicalDevice, Handle, const void*))                                                     \
  X(void, GetBufferMemoryRequirements, (LogicalDevice, Handle, MemoryRequirements*))                               \
  X(int32_t, BindBufferMemory, (LogicalDevice, Handle, Handle, uint64_t))                                          \
  X(uint64_t, GetBufferDeviceAddress, (LogicalDevice, const BufferDeviceAddressInfo*))                             \
  X(int32_t, CreateShaderModule, (LogicalDevice, const ShaderModuleCreateInfo*, const void*, Handle*))             \
  X(void, DestroyShaderModule, (LogicalDevice, Handle, const void*))                                               \
  X(int32_t, CreatePipelineLayout, (LogicalDevice, const PipelineLayoutCreateInfo*, const void*, Handle*))         \
  X(void, DestroyPipelineLayout, (LogicalDevice, Handle, const void*))                                             \
  X(int32_t, CreatePipelineCache, (LogicalDevice, const PipelineCacheCreateInfo*, const void*, Handle*))           \
  X(int32_t, GetPipelineCacheData, (LogicalDevice, Handle, size_t*, void*))                                        \
  X(void, DestroyPipelineCache, (LogicalDevice, Handle, const void*))                                              \
  X(int32_t, CreateComputePipelines,                                                                               \
    (LogicalDevice, Handle, uint32_t, const ComputePipelineCreateInfo*, const void*, Handle*))                     \
  X(void, DestroyPipeline, (LogicalDevice, Handle, const void*))                                                   \
  X(int32_t, CreateCommandPool, (LogicalDevice, const CommandPoolCreateInfo*, const void*, Handle*))               \
  X(void, DestroyCommandPool, (LogicalDevice, Handle, const void*))                                                \
  X(int32_t, AllocateCommandBuffers, (LogicalDevice, const CommandBufferAllocateInfo*, CommandBuffer*))            \
  X(int32_t, BeginCommandBuffer, (CommandBuffer, const CommandBufferBeginInfo*))                                   \
  X(int32_t, EndCommandBuffer, (CommandBuffer))                                                                    \
  X(void, CmdPipelineBarrier,                                                                                      \
    (CommandBuffer, uint32_t, uint32_t, uint32_t, uint32_t, const MemoryBarrier*, uint32_t, const void*, uint32_t, \
     const void*))                                                                                                 \
  X(void, CmdBindPipeline, (CommandBuffer, uint32_t, Handle))                                                      \
  X(void, CmdPushConstants, (CommandBuffer, Handle, uint32_t, uint32_t, uint32_t, const void*))                    \
  X(void, CmdDispatch, (CommandBuffer, uint32_t, uint32_t, uint32_t))                                              \
  X(void, CmdCopyBuffer, (CommandBuffer, Handle, Handle, uint32_t, const BufferCopy*))                             \
  X(int32_t, CreateQueryPool, (LogicalDevice, const QueryPoolCreateInfo*, const void*, Handle*))                   \
  X(void, DestroyQueryPool, (LogicalDevice, Handle, const void*))                                                  \
  X(void, CmdResetQueryPool, (CommandBuffer, Handle, uint32_t, uint32_t))                                          \
  X(void, CmdWriteTimestamp, (CommandBuffer, uint32_t, Handle, uint32_t))                                          \
  X(int32_t, GetQueryPoolResults, (LogicalDevice, Handle, uint32_t, uint32_t, size_t, void*, uint64_t, uint32_t))  \
  X(int32_t, CreateSemaphore, (LogicalDevice, const SemaphoreCreateInfo*, const void*, Handle*))                   \
  X(void, DestroySemaphore, (LogicalDevice, Handle, const void*))                                                  \
  X(int32_t, WaitSemaphores, (LogicalDevice, const SemaphoreWaitInfo*, uint64_t))                                  \
  X(int32_t, GetSemaphoreCounterValue, (LogicalDevice, Handle, uint64_t*))

#define HCQ_VK_DEVICE_OPTIONAL(X)                                                                                     \
  X(int32_t, GetMemoryHostPointerPropertiesEXT, (LogicalDevice, uint32_t, const void*, MemoryHostPointerProperties*)) \
  X(int32_t, GetCalibratedTimestampsEXT,                                                                              \
    (LogicalDevice, uint32_t, const CalibratedTimestampInfo*, uint64_t*, uint64_t*))

#define HCQ_VK_POINTER(result, name, arguments) result(*name) arguments = nullptr;
struct InstanceTable {
  HCQ_VK_INSTANCE(HCQ_VK_POINTER)
  HCQ_VK_INSTANCE_OPTIONAL(HCQ_VK_POINTER)
};
struct DeviceTable {
  HCQ_VK_DEVICE(HCQ_VK_POINTER)
  HCQ_VK_DEVICE_OPTIONAL(HCQ_VK_POINTER)
};

// A call that failed, in words: "vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY".
struct Failure {
  std::string said;
  int32_t result;
};
// Throws Failure unless the result is VK_SUCCESS.
void check(const char* function, int32_t result);

// The process's instance: made at first need, kept for good, since implementations leave much behind when they are
// unloaded. One with validation and one without. Throws Unavailable. Any thread; blocks while drivers are loaded.
struct Loaded {
  Instance instance = nullptr;
  bool validates = false;
  InstanceTable call;
  std::vector<PhysicalDevice> devices;
};
Loaded& instance(bool validation);
bool has_validation();  // whether the layer is installed; false where there is no loader

// What the validation layer has said since the last time.
std::vector<std::string> take_messages();

template <class Get>
void load_device(DeviceTable& table, Get get) {
#define HCQ_VK_LOAD(result, name, arguments) \
  table.name = reinterpret_cast<decltype(table.name)>(get("vk" #name, false));
#define HCQ_VK_LOAD_OPTIONAL(result, name, arguments) \
  table.name = reinterpret_cast<decltype(table.name)>(get("vk" #name, true));
  HCQ_VK_DEVICE(HCQ_VK_LOAD)
  HCQ_VK_DEVICE_OPTIONAL(HCQ_VK_LOAD_OPTIONAL)
}

}  // namespace hcq::vk
