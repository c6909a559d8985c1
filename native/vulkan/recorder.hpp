// Command buffers and time-stamp queries of a device, taken and given back; and recording commands into them.
#pragma once
#include "vulkan/commands.hpp"

namespace hcq::vk {

struct Query {
  Handle pool = 0;
  uint32_t index = 0;
};

// Not for two threads at once, save giving back: under its queue's lock.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(std::shared_ptr<Context> context);
  // Records the commands from `at` on that run on the device, up to the next signal or wait. Time-stamps get queries,
  // which go into `stamps`. Throws Failure; `at` is then the command that failed.
  std::shared_ptr<Run> record(const Commands& commands, size_t* at,
                              std::vector<std::pair<SignalMemory*, Query>>* stamps);
  // Whether launches of a recorded run would still be given the same arguments.
  bool is_current(const Run& run, const Commands& commands, size_t begin) const;
  // ns on CLOCK_MONOTONIC at which queries were written that are over now; `last_first`: the newest is the last.
  void read(const std::vector<std::pair<SignalMemory*, Query>>& stamps, std::vector<uint64_t>* times);
  void give_back(Run& run);  // any thread
  void give_back(Query query) { queries_.push_back(query); }
  void close();
  Context& context() { return *context_; }

 private:
  CommandBuffer take_buffer();
  Query take_query();
  void barrier(CommandBuffer buffer, uint32_t from, uint32_t to);
  void launch(CommandBuffer buffer, const Command& command, Run* run);
  void copy(CommandBuffer buffer, const Command& command, Run* run);
  void copy_apart(CommandBuffer buffer, uint64_t destination, uint64_t source, uint64_t bytes, Run* run);
  Place place(uint64_t address, uint64_t bytes, Run* run);

  std::shared_ptr<Context> context_;
  Handle pool_ = 0;
  std::mutex free_lock_;  // buffers_: whoever drops a run gives its buffer back. A leaf
  std::vector<CommandBuffer> buffers_;
  std::vector<Handle> query_pools_;
  std::vector<Query> queries_;
};

}  // namespace hcq::vk
