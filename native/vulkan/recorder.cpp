// Recording: each command waits for the one before it, and sees its memory.
#include "vulkan/recorder.hpp"

#include <algorithm>
#include <cstring>

namespace hcq::vk {

namespace {
constexpr uint32_t kQueries = 256;              // of a pool
constexpr uint64_t kMostImported = 256u << 20;  // bytes of the host's memory at once
constexpr uint32_t kMostBuffers = 16;           // command buffers made at a time
}  // namespace

Recorder::Recorder(std::shared_ptr<Work> work) : work_(std::move(work)), context_(*work_->context) {
  auto info = make<CommandPoolCreateInfo>(kCommandPoolCreateInfo);
  info.flags = kPoolReset;
  info.family = context_.facts.family;
  check("vkCreateCommandPool", context_.call.CreateCommandPool(context_.device, &info, nullptr, &pool_));
  made(Kind::pool);
  std::lock_guard<std::mutex> guard(work_->recorders_lock);
  work_->recorders.insert(this);
}

Recorder::~Recorder() {
  if (context_.generation != g_generation) return;
  std::shared_lock<std::shared_mutex> present(context_.presence);
  if (!context_.usable()) return;
  std::lock_guard<std::mutex> guard(work_->recorders_lock);
  work_->recorders.erase(this);
  drop();
}

void Recorder::drop() {
  if (pool_) context_.call.DestroyCommandPool(context_.device, pool_, nullptr), gone(Kind::pool);
  for (Handle each : query_pools_) context_.call.DestroyQueryPool(context_.device, each, nullptr), gone(Kind::queries);
  pool_ = 0;
  query_pools_.clear();
}

void Recorder::give_back(Recorded* recorded) {
  if (!context_.usable()) return;
  if (recorded->buffer) {
    free_lock_.lock();
    buffers_.push_back(recorded->buffer);
    free_lock_.unlock();
  }
  for (uint64_t each : recorded->blocks) context_.free(each);
  for (const Imported& each : recorded->imported) context_.release(each);
  recorded->buffer = nullptr;
  recorded->blocks.clear();
  recorded->imported.clear();
}

void Recorder::give_back(Query* query) {
  if (query->pool) queries_.push_back(*query);
  query->pool = 0;
}

CommandBuffer Recorder::take_buffer() {
  CommandBuffer taken = nullptr;
  free_lock_.lock();
  if (!buffers_.empty()) taken = buffers_.back(), buffers_.pop_back();
  free_lock_.unlock();
  if (taken) return taken;
  auto info = make<CommandBufferAllocateInfo>(kCommandBufferAllocateInfo);
  info.pool = pool_;
  info.count = kMostBuffers;
  CommandBuffer fresh[kMostBuffers];
  check("vkAllocateCommandBuffers", context_.call.AllocateCommandBuffers(context_.device, &info, fresh));
  free_lock_.lock();
  buffers_.insert(buffers_.end(), fresh + 1, fresh + kMostBuffers);
  free_lock_.unlock();
  return fresh[0];
}

Query Recorder::take_query() {
  if (queries_.empty()) {
    auto info = make<QueryPoolCreateInfo>(kQueryPoolCreateInfo);
    info.kind = kQueryTimestamp;
    info.count = kQueries;
    Handle pool = 0;
    check("vkCreateQueryPool", context_.call.CreateQueryPool(context_.device, &info, nullptr, &pool));
    made(Kind::queries);
    query_pools_.push_back(pool);
    for (uint32_t i = kQueries; i-- > 0;) queries_.push_back({pool, i});
  }
  Query taken = queries_.back();
  queries_.pop_back();
  return taken;
}

void Recorder::barrier(CommandBuffer buffer, uint32_t from, uint32_t to) {
  auto memory = make<MemoryBarrier>(kMemoryBarrier);
  memory.source = kMemoryWrite | (from & kAtHost ? uint32_t{kHostWrite} : 0u);
  memory.destination = to == kAtHost ? uint32_t{kHostRead} : kMemoryRead | kMemoryWrite;
  context_.call.CmdPipelineBarrier(buffer, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

void Recorder::begin(Recorded* to, bool again) {
  to->buffer = take_buffer();
  to->again = again;
  to->dropped = context_.dropped.load(std::memory_order_relaxed);
  auto begin = make<CommandBufferBeginInfo>(kCommandBufferBeginInfo);
  begin.flags = again ? kSimultaneous : kOneTime;
  check("vkBeginCommandBuffer", context_.call.BeginCommandBuffer(to->buffer, &begin));
  barrier(to->buffer, kAtAllCommands | kAtHost, kAtAllCommands);
}

void Recorder::end(Recorded* to) {
  barrier(to->buffer, kAtAllCommands, kAtHost);
  check("vkEndCommandBuffer", context_.call.EndCommandBuffer(to->buffer));
}

void Recorder::stamp(Recorded* to, Query* query) {
  if (!context_.facts.timestamp_bits) return;
  *query = take_query();
  context_.call.CmdResetQueryPool(to->buffer, query->pool, query->index, 1);
  context_.call.CmdWriteTimestamp(to->buffer, kAtBottom, query->pool, query->index);
}

uint64_t Recorder::read(Query query) {
  uint64_t ticks = 0;
  check("vkGetQueryPoolResults",
        context_.call.GetQueryPoolResults(context_.device, query.pool, query.index, 1, 8, &ticks, 8, kQuery64));
  return ticks;
}

bool Recorder::stands(const Recorded& recorded) const {
  return !recorded.placed || recorded.dropped == context_.dropped.load(std::memory_order_relaxed);
}

// A kernel's own arguments, with addresses as the device has them; true: some are others than the host's.
bool Recorder::write(const Kernel& kernel, const uint8_t* kernargs, uint8_t* to) {
  for (const Argument& each : kernel.arguments) std::memcpy(to + each.to, kernargs + each.from, each.bytes);
  if (context_.unified) return false;
  bool translated = false;
  for (const Argument& each : kernel.addresses) {
    uint64_t address;
    Place at;
    std::memcpy(&address, kernargs + each.from, 8);
    if (!context_.find(address, &at)) continue;
    std::memcpy(to + each.to, &at.device_address, 8);
    translated |= at.device_address != address;
  }
  return translated;
}

void Recorder::launch(Recorded* to, const Kernel& kernel, const uint8_t* kernargs, const uint32_t groups[3],
                      const uint32_t items[3]) {
  Handle pipeline = 0;
  if (!kernel.find(items, &pipeline)) throw Failure{"there is no pipeline for groups of that size", kUnknown};
  uint8_t pushed[kPushBytes] = {};
  std::memcpy(pushed, groups, 3 * sizeof *groups);
  uint32_t bytes = kHead + 8;
  if (!kernel.in_memory) {
    bytes = kHead + (kernel.argument_bytes + 3) / 4 * 4;
    to->placed |= write(kernel, kernargs, pushed + kHead);
  } else {
    uint64_t copy = context_.allocate(kernel.argument_bytes, Use::shared);
    to->blocks.push_back(copy);
    to->placed |= write(kernel, kernargs, reinterpret_cast<uint8_t*>(copy));
    Place at;
    context_.find(copy, &at);
    std::memcpy(pushed + kHead, &at.device_address, 8);
  }
  auto& call = context_.call;
  call.CmdBindPipeline(to->buffer, kBindCompute, pipeline);
  call.CmdPushConstants(to->buffer, kernel.module->layout(), kStageCompute, 0, bytes, pushed);
  call.CmdDispatch(to->buffer, groups[0], groups[1], groups[2]);
}

Place Recorder::place(uint64_t address, uint64_t bytes, Recorded* to) {
  Place at;
  to->placed = true;
  if (context_.find(address, &at)) return at;
  Imported imported;
  uint64_t offset = 0;
  bytes = std::min(bytes, kMostImported);
  if (!context_.import(address, bytes, &imported, &offset))
    throw Failure{"a copy from or to " + std::to_string(bytes) + " bytes of the host's memory, which " +
                      context_.facts.properties.name + " can't use",
                  kInvalidExternalHandle};
  to->imported.push_back(imported);
  to->again = false;  // what is at that address may be another's memory the next time
  return Place{imported.buffer, offset, bytes, 0};
}

void Recorder::copy(Recorded* to, uint64_t destination, uint64_t source, uint64_t bytes) {
  uint64_t apart = destination > source ? destination - source : source - destination;
  if (apart >= bytes) return copy_apart(to, destination, source, bytes);
  // Ranges that overlap are copied as if read first.
  uint64_t between = context_.allocate(bytes, Use::device);
  to->blocks.push_back(between);
  copy_apart(to, between, source, bytes);
  next(to);
  copy_apart(to, destination, between, bytes);
}

void Recorder::next(Recorded* to) { barrier(to->buffer, kAtAllCommands, kAtAllCommands); }

void Recorder::copy_apart(Recorded* recorded, uint64_t destination, uint64_t source, uint64_t bytes) {
  while (bytes) {
    Place to = place(destination, bytes, recorded), from = place(source, bytes, recorded);
    BufferCopy region{from.offset, to.offset, std::min({bytes, to.bytes, from.bytes})};
    context_.call.CmdCopyBuffer(recorded->buffer, from.buffer, to.buffer, 1, &region);
    destination += region.size, source += region.size, bytes -= region.size;
  }
}

}  // namespace hcq::vk
