// Recording: each command waits for the one before it, and sees its memory.
#include "vulkan/recorder.hpp"

#include <algorithm>
#include <cstring>

namespace hcq::vk {

namespace {
constexpr uint32_t kQueries = 256;              // of a pool
constexpr uint64_t kMostImported = 256u << 20;  // bytes of the host's memory at once
constexpr uint32_t kMostBuffers = 16;           // command buffers made at a time

uint32_t pushed_arguments(const Pipeline& pipeline) { return pipeline.in_memory ? 0 : pipeline.argument_bytes; }
}  // namespace

Run::~Run() {
  if (auto owner = recorder.lock()) owner->give_back(*this);
}

Recorder::Recorder(std::shared_ptr<Context> context) : context_(std::move(context)) {
  auto info = make<CommandPoolCreateInfo>(kCommandPoolCreateInfo);
  info.flags = kPoolReset;
  info.family = context_->facts.family;
  check("vkCreateCommandPool", context_->call.CreateCommandPool(context_->device, &info, nullptr, &pool_));
  made(Kind::pool);
}

void Recorder::close() {
  if (!context_->usable() || context_->busy.load()) return;
  if (pool_) context_->call.DestroyCommandPool(context_->device, pool_, nullptr), gone(Kind::pool);
  for (Handle each : query_pools_)
    context_->call.DestroyQueryPool(context_->device, each, nullptr), gone(Kind::queries);
  pool_ = 0;
  query_pools_.clear();
}

void Recorder::give_back(Run& run) {
  if (!context_->usable()) return;
  if (run.buffer) {
    std::lock_guard<std::mutex> guard(free_lock_);
    buffers_.push_back(run.buffer);
  }
  for (uint64_t each : run.blocks) context_->free(each);
  for (const Imported& each : run.imported) context_->release(each);
  run.buffer = nullptr;
  run.blocks.clear();
  run.imported.clear();
}

CommandBuffer Recorder::take_buffer() {
  std::lock_guard<std::mutex> guard(free_lock_);
  if (buffers_.empty()) {
    auto info = make<CommandBufferAllocateInfo>(kCommandBufferAllocateInfo);
    info.pool = pool_;
    info.count = kMostBuffers;
    CommandBuffer fresh[kMostBuffers];
    check("vkAllocateCommandBuffers", context_->call.AllocateCommandBuffers(context_->device, &info, fresh));
    buffers_.insert(buffers_.end(), fresh, fresh + kMostBuffers);
  }
  CommandBuffer taken = buffers_.back();
  buffers_.pop_back();
  return taken;
}

Query Recorder::take_query() {
  if (queries_.empty()) {
    auto info = make<QueryPoolCreateInfo>(kQueryPoolCreateInfo);
    info.kind = kQueryTimestamp;
    info.count = kQueries;
    Handle pool = 0;
    check("vkCreateQueryPool", context_->call.CreateQueryPool(context_->device, &info, nullptr, &pool));
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
  context_->call.CmdPipelineBarrier(buffer, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

std::shared_ptr<Run> Recorder::record(const Commands& commands, size_t* at,
                                      std::vector<std::pair<SignalMemory*, Query>>* stamps) {
  auto& call = context_->call;
  auto run = std::make_shared<Run>();
  run->recorder = weak_from_this();
  run->buffer = take_buffer();
  run->again = commands.bound;
  auto begin = make<CommandBufferBeginInfo>(kCommandBufferBeginInfo);
  begin.flags = commands.bound ? kSimultaneous : kOneTime;
  check("vkBeginCommandBuffer", call.BeginCommandBuffer(run->buffer, &begin));
  bool first = true;
  for (; *at < commands.list.size(); ++*at) {
    const Command& command = commands.list[*at];
    if (command.op == Op::signal || command.op == Op::wait) break;
    if (command.op == Op::barrier) continue;  // all writes before are seen as it is
    if (command.op == Op::exec && !(command.groups[0] && command.groups[1] && command.groups[2])) continue;
    barrier(run->buffer, first ? kAtAllCommands | kAtHost : kAtAllCommands, kAtAllCommands);
    first = false;
    if (command.op == Op::timestamp) {
      run->again = false;  // its query is written once
      if (!context_->facts.timestamp_bits) {
        stamps->push_back({command.signal, Query{}});
        continue;
      }
      Query query = take_query();
      stamps->push_back({command.signal, query});
      call.CmdResetQueryPool(run->buffer, query.pool, query.index, 1);
      call.CmdWriteTimestamp(run->buffer, kAtBottom, query.pool, query.index);
    } else if (command.op == Op::exec) {
      launch(run->buffer, command, run.get());
    } else {
      copy(run->buffer, command, run.get());
    }
  }
  barrier(run->buffer, kAtAllCommands, kAtHost);
  check("vkEndCommandBuffer", call.EndCommandBuffer(run->buffer));
  run->end = *at;
  return run;
}

void Recorder::launch(CommandBuffer buffer, const Command& command, Run* run) {
  const Pipeline& pipeline = *command.pipeline;
  uint8_t pushed[kPushBytes] = {};
  std::memcpy(pushed, command.groups, sizeof command.groups);
  uint32_t bytes = kHead + 8;
  Place at;
  if (!pipeline.in_memory) {
    bytes = kHead + (pipeline.argument_bytes + 3) / 4 * 4;
    std::memcpy(pushed + kHead, command.arguments, pipeline.argument_bytes);
    if (!context_->unified)
      for (uint32_t i = 0; i < pipeline.buffers; ++i) {
        uint64_t address;
        std::memcpy(&address, pushed + kHead + 8 * i, 8);
        if (context_->find(address, &at)) std::memcpy(pushed + kHead + 8 * i, &at.device_address, 8);
      }
    if (run->again)
      run->arguments.insert(run->arguments.end(), pushed + kHead, pushed + kHead + pipeline.argument_bytes);
  } else {
    uint64_t given = reinterpret_cast<uint64_t>(command.arguments);
    if (!context_->unified || !context_->find(given, &at)) {
      // The device's own copy: of memory that it doesn't reach, or with addresses as it knows them.
      uint64_t copy = context_->allocate(pipeline.argument_bytes, Use::shared);
      run->blocks.push_back(copy);
      run->again = false;
      auto* to = reinterpret_cast<uint8_t*>(copy);
      std::memcpy(to, command.arguments, pipeline.argument_bytes);
      for (uint32_t i = 0; i < pipeline.buffers && !context_->unified; ++i) {
        uint64_t address;
        std::memcpy(&address, to + 8 * i, 8);
        if (context_->find(address, &at)) std::memcpy(to + 8 * i, &at.device_address, 8);
      }
      context_->find(copy, &at);
    }
    std::memcpy(pushed + kHead, &at.device_address, 8);
  }
  auto& call = context_->call;
  call.CmdBindPipeline(buffer, kBindCompute, pipeline.handle);
  call.CmdPushConstants(buffer, pipeline.module->layout(), kStageCompute, 0, bytes, pushed);
  call.CmdDispatch(buffer, command.groups[0], command.groups[1], command.groups[2]);
}

bool Recorder::is_current(const Run& run, const Commands& commands, size_t begin) const {
  size_t seen = 0;
  for (size_t i = begin; i < run.end; ++i) {
    const Command& command = commands.list[i];
    if (command.op != Op::exec || !(command.groups[0] && command.groups[1] && command.groups[2])) continue;
    uint32_t bytes = pushed_arguments(*command.pipeline);
    if (std::memcmp(run.arguments.data() + seen, command.arguments, bytes) != 0) return false;
    seen += bytes;
  }
  return true;
}

Place Recorder::place(uint64_t address, uint64_t bytes, Run* run) {
  Place at;
  if (context_->find(address, &at)) return at;
  Imported imported;
  uint64_t offset = 0;
  bytes = std::min(bytes, kMostImported);
  if (!context_->import(address, bytes, &imported, &offset))
    throw Failure{"a copy from or to " + std::to_string(bytes) + " bytes of the host's memory, which " +
                      context_->facts.properties.name + " can't use",
                  kInvalidExternalHandle};
  run->imported.push_back(imported);
  run->again = false;  // what is at that address may be another's memory the next time
  return Place{imported.buffer, offset, bytes, 0};
}

void Recorder::copy(CommandBuffer buffer, const Command& command, Run* run) {
  uint64_t to = command.destination, from = command.source, bytes = command.bytes;
  if (!bytes || to == from) return;
  uint64_t apart = to > from ? to - from : from - to;
  if (apart >= bytes) return copy_apart(buffer, to, from, bytes, run);
  uint64_t between = context_->allocate(bytes, Use::device);
  run->blocks.push_back(between);
  copy_apart(buffer, between, from, bytes, run);
  barrier(buffer, kAtAllCommands, kAtAllCommands);
  copy_apart(buffer, to, between, bytes, run);
}

void Recorder::copy_apart(CommandBuffer buffer, uint64_t destination, uint64_t source, uint64_t bytes, Run* run) {
  while (bytes) {
    Place to = place(destination, bytes, run), from = place(source, bytes, run);
    BufferCopy region{from.offset, to.offset, std::min({bytes, to.bytes, from.bytes})};
    context_->call.CmdCopyBuffer(buffer, from.buffer, to.buffer, 1, &region);
    destination += region.size, source += region.size, bytes -= region.size;
  }
}

void Recorder::read(const std::vector<std::pair<SignalMemory*, Query>>& stamps, std::vector<uint64_t>* times) {
  if (stamps.empty()) return;
  uint64_t now = now_ns(), newest = 0;
  uint32_t bits = context_->facts.timestamp_bits;
  uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  double period = context_->facts.properties.limits.timestamp_period;
  std::vector<uint64_t> ticks(stamps.size());
  for (size_t i = 0; i < stamps.size(); ++i) {
    Query query = stamps[i].second;
    if (query.pool) {
      check("vkGetQueryPoolResults", context_->call.GetQueryPoolResults(context_->device, query.pool, query.index, 1, 8,
                                                                        &ticks[i], 8, kQuery64));
      give_back(query);
    }
    newest = ticks[i] & mask;
  }
  if (context_->facts.calibrated && bits) {
    CalibratedTimestampInfo clocks[2] = {make<CalibratedTimestampInfo>(kCalibratedTimestampInfo),
                                         make<CalibratedTimestampInfo>(kCalibratedTimestampInfo)};
    clocks[0].domain = kClockDevice;
    clocks[1].domain = kClockMonotonic;
    uint64_t both[2] = {0, 0}, deviation = 0;
    if (context_->call.GetCalibratedTimestampsEXT(context_->device, 2, clocks, both, &deviation) == kSuccess) {
      newest = both[0] & mask;
      now = both[1];
    }
  }
  for (uint64_t tick : ticks)
    times->push_back(now - static_cast<uint64_t>(static_cast<double>((newest - (tick & mask)) & mask) * period));
}

}  // namespace hcq::vk
