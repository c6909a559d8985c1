// What is used of the Vulkan 1.3 interface: handles, structures and numbers, as the Vulkan specification lays them out
// (registry.khronos.org/vulkan, chapters named beside them). No header or library of Vulkan is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hcq::vk {

using Instance = struct InstanceHandle*;
using PhysicalDevice = struct PhysicalDeviceHandle*;
using LogicalDevice = struct LogicalDeviceHandle*;
using DeviceQueue = struct DeviceQueueHandle*;
using CommandBuffer = struct CommandBufferHandle*;
// Handles that are no pointers: 64 bits everywhere.
using Handle = uint64_t;
using Bool = uint32_t;
using Function = void (*)();

constexpr uint32_t version(uint32_t major, uint32_t minor) { return major << 22 | minor << 12; }

// Results (Fundamentals: Return Codes).
enum Result : int32_t {
  kSuccess = 0,
  kTimeout = 2,
  kIncomplete = 5,
  kOutOfHostMemory = -1,
  kOutOfDeviceMemory = -2,
  kInitializationFailed = -3,
  kDeviceLost = -4,
  kLayerNotPresent = -6,
  kIncompatibleDriver = -9,
  kTooManyObjects = -10,
  kUnknown = -13,
  kInvalidExternalHandle = -1000072003,
};
const char* result_name(int32_t result);

enum StructureType : int32_t {
  kApplicationInfo = 0,
  kInstanceCreateInfo = 1,
  kDeviceQueueCreateInfo = 2,
  kDeviceCreateInfo = 3,
  kSubmitInfo = 4,
  kMemoryAllocateInfo = 5,
  kSemaphoreCreateInfo = 9,
  kQueryPoolCreateInfo = 11,
  kBufferCreateInfo = 12,
  kShaderModuleCreateInfo = 16,
  kPipelineCacheCreateInfo = 17,
  kPipelineShaderStageCreateInfo = 18,
  kComputePipelineCreateInfo = 29,
  kPipelineLayoutCreateInfo = 30,
  kCommandPoolCreateInfo = 39,
  kCommandBufferAllocateInfo = 40,
  kCommandBufferBeginInfo = 42,
  kMemoryBarrier = 46,
  kVulkan11Features = 49,
  kVulkan12Features = 51,
  kVulkan13Features = 53,
  kFeatures2 = 1000059000,
  kProperties2 = 1000059001,
  kMemoryAllocateFlagsInfo = 1000060000,
  kExternalMemoryBufferCreateInfo = 1000072000,
  kSubgroupProperties = 1000094000,
  kDebugUtilsMessengerCreateInfo = 1000128004,
  kMaintenance3Properties = 1000168000,
  kImportMemoryHostPointerInfo = 1000178000,
  kMemoryHostPointerProperties = 1000178001,
  kExternalMemoryHostProperties = 1000178002,
  kCalibratedTimestampInfo = 1000184000,
  kDriverProperties = 1000196000,
  kFloatControlsProperties = 1000197000,
  kSemaphoreTypeCreateInfo = 1000207002,
  kTimelineSemaphoreSubmitInfo = 1000207003,
  kSemaphoreWaitInfo = 1000207004,
  kBufferDeviceAddressInfo = 1000244001,
  kMaintenance4Properties = 1000413001,
};

enum : uint32_t {
  kEnumeratePortability = 1,
  kQueueCompute = 2,
  kTypeGpuIntegrated = 1,
  kTypeGpuDiscrete = 2,
  kTypeGpuVirtual = 3,
  kTypeCpu = 4,
  kMemoryDeviceLocal = 1,
  kMemoryHostVisible = 2,
  kMemoryHostCoherent = 4,
  kMemoryHostCached = 8,
  kUsageTransferSource = 0x1,
  kUsageTransferDestination = 0x2,
  kUsageStorage = 0x20,
  kUsageDeviceAddress = 0x20000,
  kAllocateDeviceAddress = 2,
  kHandleHostAllocation = 0x80,
  kStageCompute = 0x20,
  kBindCompute = 1,
  kAtBottom = 0x2000,
  kAtHost = 0x4000,
  kAtAllCommands = 0x10000,
  kHostRead = 0x2000,
  kHostWrite = 0x4000,
  kMemoryRead = 0x8000,
  kMemoryWrite = 0x10000,
  kQueryTimestamp = 2,
  kQuery64 = 1,
  kPoolReset = 2,
  kOneTime = 1,
  kSimultaneous = 4,
  kTimelineType = 1,
  kClockDevice = 0,
  kClockMonotonic = 1,
  kSeverityWarning = 0x100,
  kSeverityError = 0x1000,
  kMessageValidation = 2,
};
constexpr uint64_t kWholeSize = ~uint64_t{0};

// Every structure that can be chained begins with these two.
struct Base {
  StructureType type;
  void* next;
};

struct ApplicationInfo : Base {
  const char* application;
  uint32_t application_version;
  const char* engine;
  uint32_t engine_version;
  uint32_t api_version;
};
struct InstanceCreateInfo : Base {
  uint32_t flags;
  const ApplicationInfo* application;
  uint32_t layer_count;
  const char* const* layers;
  uint32_t extension_count;
  const char* const* extensions;
};
struct ExtensionProperties {
  char name[256];
  uint32_t version;
};
struct LayerProperties {
  char name[256];
  uint32_t spec_version, implementation_version;
  char description[256];
};

// Limits (chapter Limits), in the order of VkPhysicalDeviceLimits.
struct Limits {
  uint32_t max_image_1d, max_image_2d, max_image_3d, max_image_cube, max_image_layers, max_texel_elements;
  uint32_t max_uniform_range, max_storage_range, max_push_constants, max_allocations, max_samplers;
  uint64_t buffer_image_granularity, sparse_address_space;
  uint32_t max_descriptor_sets;
  uint32_t per_stage[7];  // samplers .. resources
  uint32_t per_set[8];    // samplers .. input attachments
  uint32_t vertex[4];     // attributes, bindings, attribute offset, stride
  uint32_t vertex_output;
  uint32_t tessellation[8];
  uint32_t geometry[5];
  uint32_t fragment[4];
  uint32_t max_shared_memory;
  uint32_t max_group_count[3];
  uint32_t max_group_invocations;
  uint32_t max_group_size[3];
  uint32_t precision_bits[3];  // sub-pixel, sub-texel, mipmap
  uint32_t max_draw_index, max_draw_count;
  float max_lod_bias, max_anisotropy;
  uint32_t max_viewports, max_viewport_size[2];
  float viewport_range[2];
  uint32_t viewport_bits;
  size_t min_map_alignment;
  uint64_t min_texel_alignment, min_uniform_alignment, min_storage_alignment;
  int32_t min_texel_offset;
  uint32_t max_texel_offset;
  int32_t min_gather_offset;
  uint32_t max_gather_offset;
  float interpolation[2];
  uint32_t interpolation_bits;
  uint32_t framebuffer[3];
  uint32_t framebuffer_samples[4];
  uint32_t max_color_attachments;
  uint32_t sampled_samples[4];
  uint32_t storage_samples;
  uint32_t max_sample_mask_words;
  Bool timestamp_compute_and_graphics;
  float timestamp_period;  // ns a tick
  uint32_t max_clip[3];
  uint32_t queue_priorities;
  float point_range[2], line_range[2], point_granularity, line_granularity;
  Bool strict_lines, standard_samples;
  uint64_t copy_offset_alignment, copy_row_alignment, non_coherent_atom;
};
struct Properties {
  uint32_t api_version, driver_version, vendor, device;
  uint32_t kind;
  char name[256];
  uint8_t cache_id[16];
  Limits limits;
  Bool sparse[5];
};
static_assert(sizeof(Limits) == 504 && sizeof(Properties) == 824, "VkPhysicalDeviceProperties on 64-bit systems");

struct Properties2 : Base {
  Properties properties;
};
struct DriverProperties : Base {
  uint32_t driver;
  char name[256];
  char info[256];
  uint8_t conformance[4];
};
struct FloatControls : Base {
  uint32_t denormal_independence, rounding_independence;
  // 16, 32 and 64 bits each
  Bool keeps_zero_inf_nan[3], keeps_denormals[3], flushes_denormals[3], rounds_to_even[3], rounds_to_zero[3];
};
struct SubgroupProperties : Base {
  uint32_t size, stages, operations;
  Bool quads_everywhere;
};
struct Maintenance3Properties : Base {
  uint32_t max_per_set;
  uint64_t max_allocation;
};
struct Maintenance4Properties : Base {
  uint64_t max_buffer;
};
struct ExternalMemoryHostProperties : Base {
  uint64_t alignment;
};

// Features (chapter Features). Each is an array of switches in the specification's order, indexed by what is used.
struct Features {
  enum { kFloat64 = 39, kInt64 = 40, kInt16 = 41, kCount = 55 };
  Bool on[kCount];
};
struct Features2 : Base {
  Features features;
};
struct Features11 : Base {
  enum { kStorage16 = 0, kUniformStorage16 = 1, kVariablePointersStorage = 7, kVariablePointers = 8, kCount = 12 };
  Bool on[kCount];
};
struct Features12 : Base {
  enum {
    kStorage8 = 2,
    kUniformStorage8 = 3,
    kBufferAtomics64 = 5,
    kSharedAtomics64 = 6,
    kFloat16 = 7,
    kInt8 = 8,
    kScalarLayout = 31,
    kSubgroupTypes = 34,
    kTimeline = 37,
    kDeviceAddress = 38,
    kMemoryModel = 41,
    kMemoryModelDevice = 42,
    kCount = 47
  };
  Bool on[kCount];
};
struct Features13 : Base {
  enum { kSubgroupSize = 7, kFullSubgroups = 8, kMaintenance4 = 14, kCount = 15 };
  Bool on[kCount];
};

struct QueueFamily {
  uint32_t flags, count, timestamp_bits, granularity[3];
};
struct MemoryType {
  uint32_t flags, heap;
};
struct MemoryHeap {
  uint64_t size;
  uint32_t flags;
};
struct MemoryProperties {
  uint32_t type_count;
  MemoryType types[32];
  uint32_t heap_count;
  MemoryHeap heaps[16];
};

struct DeviceQueueCreateInfo : Base {
  uint32_t flags, family, count;
  const float* priorities;
};
struct DeviceCreateInfo : Base {
  uint32_t flags, queue_count;
  const DeviceQueueCreateInfo* queues;
  uint32_t layer_count;
  const char* const* layers;
  uint32_t extension_count;
  const char* const* extensions;
  const void* features;
};

struct MemoryAllocateInfo : Base {
  uint64_t size;
  uint32_t type_index;
};
struct MemoryAllocateFlagsInfo : Base {
  uint32_t flags, device_mask;
};
struct ImportMemoryHostPointerInfo : Base {
  uint32_t handle_type;
  void* pointer;
};
struct MemoryHostPointerProperties : Base {
  uint32_t type_bits;
};
struct MemoryRequirements {
  uint64_t size, alignment;
  uint32_t type_bits;
};
struct BufferCreateInfo : Base {
  uint32_t flags;
  uint64_t size;
  uint32_t usage, sharing, family_count;
  const uint32_t* families;
};
struct ExternalMemoryBufferCreateInfo : Base {
  uint32_t handle_types;
};
struct BufferDeviceAddressInfo : Base {
  Handle buffer;
};
struct BufferCopy {
  uint64_t source, destination, size;
};

struct ShaderModuleCreateInfo : Base {
  uint32_t flags;
  size_t size;
  const uint32_t* code;
};
struct PushConstantRange {
  uint32_t stages, offset, size;
};
struct PipelineLayoutCreateInfo : Base {
  uint32_t flags, set_count;
  const Handle* sets;
  uint32_t range_count;
  const PushConstantRange* ranges;
};
struct PipelineCacheCreateInfo : Base {
  uint32_t flags;
  size_t size;
  const void* data;
};
struct SpecializationEntry {
  uint32_t id, offset;
  size_t size;
};
struct SpecializationInfo {
  uint32_t count;
  const SpecializationEntry* entries;
  size_t size;
  const void* data;
};
struct PipelineShaderStageCreateInfo : Base {
  uint32_t flags, stage;
  Handle module;
  const char* name;
  const SpecializationInfo* specialization;
};
struct ComputePipelineCreateInfo : Base {
  uint32_t flags;
  PipelineShaderStageCreateInfo stage;
  Handle layout, base;
  int32_t base_index;
};

struct CommandPoolCreateInfo : Base {
  uint32_t flags, family;
};
struct CommandBufferAllocateInfo : Base {
  Handle pool;
  uint32_t level, count;
};
struct CommandBufferBeginInfo : Base {
  uint32_t flags;
  const void* inheritance;
};
struct MemoryBarrier : Base {
  uint32_t source, destination;
};
struct QueryPoolCreateInfo : Base {
  uint32_t flags, kind, count, statistics;
};

struct SemaphoreCreateInfo : Base {
  uint32_t flags;
};
struct SemaphoreTypeCreateInfo : Base {
  uint32_t kind;
  uint64_t initial;
};
struct TimelineSemaphoreSubmitInfo : Base {
  uint32_t wait_count;
  const uint64_t* wait_values;
  uint32_t signal_count;
  const uint64_t* signal_values;
};
struct SemaphoreWaitInfo : Base {
  uint32_t flags, count;
  const Handle* semaphores;
  const uint64_t* values;
};
struct SubmitInfo : Base {
  uint32_t wait_count;
  const Handle* waits;
  const uint32_t* wait_stages;
  uint32_t buffer_count;
  const CommandBuffer* buffers;
  uint32_t signal_count;
  const Handle* signals;
};
struct CalibratedTimestampInfo : Base {
  uint32_t domain;
};

struct DebugMessage : Base {  // of VkDebugUtilsMessengerCallbackDataEXT what is read
  uint32_t flags;
  const char* id_name;
  int32_t id;
  const char* text;
};
struct DebugMessengerCreateInfo : Base {
  uint32_t flags, severities, kinds;
  Bool (*callback)(uint32_t severity, uint32_t kinds, const DebugMessage* message, void* user);
  void* user;
};

// A structure with its type set and everything else zero.
template <class T>
T make(StructureType type, void* next = nullptr) {
  T made{};
  made.type = type;
  made.next = next;
  return made;
}

}  // namespace hcq::vk
