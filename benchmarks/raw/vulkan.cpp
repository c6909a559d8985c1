// What Vulkan itself takes for a launch: its own calls, one after another, with hcq's declarations of them and nothing
// else of it. Built by workers/on_raw.py with native/vulkan's loader, context, memory and pipeline.
#include <cstring>
#include <memory>

#include "vulkan/pipeline.hpp"

using namespace hcq;
using namespace hcq::vk;

namespace {
constexpr uint32_t kBuffers = 64;

struct Raw {
  std::shared_ptr<Context> context;
  std::unique_ptr<Module> module;
  Handle pipeline = 0, pool = 0, semaphore = 0;
  CommandBuffer buffers[kBuffers], recorded = nullptr;
  uint64_t address = 0, value = 0;
} raw;

void record(CommandBuffer buffer, uint32_t flags) {
  auto& call = raw.context->call;
  auto begin = make<CommandBufferBeginInfo>(kCommandBufferBeginInfo);
  begin.flags = flags;
  check("vkBeginCommandBuffer", call.BeginCommandBuffer(buffer, &begin));
  auto memory = make<MemoryBarrier>(kMemoryBarrier);
  memory.source = kMemoryWrite;
  memory.destination = kMemoryRead | kMemoryWrite;
  call.CmdPipelineBarrier(buffer, kAtAllCommands, kAtAllCommands, 0, 1, &memory, 0, nullptr, 0, nullptr);
  uint32_t pushed[6] = {1, 1, 1, 0};
  std::memcpy(pushed + 4, &raw.address, 8);
  call.CmdBindPipeline(buffer, kBindCompute, raw.pipeline);
  call.CmdPushConstants(buffer, raw.module->layout(), kStageCompute, 0, sizeof pushed, pushed);
  call.CmdDispatch(buffer, 1, 1, 1);
  check("vkEndCommandBuffer", call.EndCommandBuffer(buffer));
}

void submit(CommandBuffer buffer) {
  ++raw.value;
  auto values = make<TimelineSemaphoreSubmitInfo>(kTimelineSemaphoreSubmitInfo);
  values.signal_count = 1;
  values.signal_values = &raw.value;
  auto info = make<SubmitInfo>(kSubmitInfo, &values);
  info.buffer_count = 1;
  info.buffers = &buffer;
  info.signal_count = 1;
  info.signals = &raw.semaphore;
  check("vkQueueSubmit", raw.context->call.QueueSubmit(raw.context->queue, 1, &info, 0));
}

void wait(uint64_t value) {
  auto info = make<SemaphoreWaitInfo>(kSemaphoreWaitInfo);
  info.count = 1;
  info.semaphores = &raw.semaphore;
  info.values = &value;
  check("vkWaitSemaphores", raw.context->call.WaitSemaphores(raw.context->device, &info, ~uint64_t{0}));
}
}  // namespace

extern "C" {
// Opens device 0 with a module whose kernel takes one address. 0, or 1 where there is no Vulkan.
__attribute__((visibility("default"))) uint64_t raw_vulkan_open(const void* words, uint64_t bytes, const char* entry) {
  try {
    Loaded& loaded = instance(false);
    raw.context = std::make_shared<Context>(loaded, loaded.devices[0], false);
    raw.module = std::make_unique<Module>(raw.context, words, bytes);
    const uint32_t items[3] = {1, 1, 1};
    raw.pipeline = raw.module->pipeline(entry, items, "", nullptr);
    raw.address = raw.context->allocate(256, Use::shared);
    auto& call = raw.context->call;
    auto pool = make<CommandPoolCreateInfo>(kCommandPoolCreateInfo);
    pool.flags = kPoolReset;
    pool.family = raw.context->facts.family;
    check("vkCreateCommandPool", call.CreateCommandPool(raw.context->device, &pool, nullptr, &raw.pool));
    auto info = make<CommandBufferAllocateInfo>(kCommandBufferAllocateInfo);
    info.pool = raw.pool;
    info.count = kBuffers;
    check("vkAllocateCommandBuffers", call.AllocateCommandBuffers(raw.context->device, &info, raw.buffers));
    info.count = 1;
    check("vkAllocateCommandBuffers", call.AllocateCommandBuffers(raw.context->device, &info, &raw.recorded));
    record(raw.recorded, kSimultaneous);
    auto kind = make<SemaphoreTypeCreateInfo>(kSemaphoreTypeCreateInfo);
    kind.kind = kTimelineType;
    auto semaphore = make<SemaphoreCreateInfo>(kSemaphoreCreateInfo, &kind);
    check("vkCreateSemaphore", call.CreateSemaphore(raw.context->device, &semaphore, nullptr, &raw.semaphore));
    return 0;
  } catch (const Unavailable&) {
    return 1;
  } catch (const Failure&) {
    return 1;
  }
}

// ns of n launches: recorded each (or once), waited for each (or at the end).
__attribute__((visibility("default"))) uint64_t raw_vulkan_launch(uint64_t n, int once, int waits) {
  uint64_t start = now_ns();
  for (uint64_t i = 0; i < n; ++i) {
    if (once) {
      submit(raw.recorded);
    } else {
      if (i >= kBuffers) wait(raw.value - kBuffers + 1);  // until that buffer's last launch is over
      CommandBuffer buffer = raw.buffers[i % kBuffers];
      record(buffer, kOneTime);
      submit(buffer);
    }
    if (waits) wait(raw.value);
  }
  wait(raw.value);
  return now_ns() - start;
}

__attribute__((visibility("default"))) int32_t raw_vulkan_result() { return *reinterpret_cast<int32_t*>(raw.address); }
}
