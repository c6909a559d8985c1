// Command buffers and time-stamp queries of a queue, taken and given back; and recording commands into them.
#pragma once
#include <memory>
#include <vector>

#include "vulkan/kernel.hpp"
#include "vulkan/work.hpp"

namespace hcq::vk {

struct Query {
  Handle pool = 0;  // 0: none
  uint32_t index = 0;
};

// Commands in a buffer, one after the other, and what belongs to them until they are over.
struct Recorded {
  CommandBuffer buffer = nullptr;
  bool again = false;            // good for being given again
  bool placed = false;           // by buffers that were looked up: until memory goes back to the driver,
  uint64_t dropped = 0;          // as often as it had by then (Context::dropped)
  std::vector<uint64_t> blocks;  // memory that only this uses
  std::vector<Imported> imported;
};

// Where it calls Vulkan the device is open (Presence). Not for two threads at once, save giving back.
class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Work> work);  // throws Failure
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // The commands wait for what was given before, and see its memory. `again`: to be given more than once. Throw
  // Failure.
  void begin(Recorded* to, bool again);
  void launch(Recorded* to, const Kernel& kernel, const uint8_t* kernargs, const uint32_t groups[3],
              const uint32_t items[3]);
  void copy(Recorded* to, uint64_t destination, uint64_t source, uint64_t bytes);
  void next(Recorded* to);  // between two commands
  // When what was recorded before is over, or nothing where the device has no time-stamps.
  void stamp(Recorded* to, Query* query);
  void end(Recorded* to);
  // The ticks that a query, which is over, was written with; throws Failure.
  uint64_t read(Query query);

  bool stands(const Recorded& recorded) const;  // what it was recorded for is where it was

  void give_back(Recorded* recorded);  // it is over. Any thread
  void give_back(Query* query);
  void drop();  // frees what the device has; under Work::recorders_lock
  const std::shared_ptr<Work>& work() const { return work_; }

 private:
  CommandBuffer take_buffer();
  Query take_query();
  void barrier(CommandBuffer buffer, uint32_t from, uint32_t to);
  void copy_apart(Recorded* to, uint64_t destination, uint64_t source, uint64_t bytes);
  Place place(uint64_t address, uint64_t bytes, Recorded* to);
  bool write(const Kernel& kernel, const uint8_t* kernargs, uint8_t* to);

  std::shared_ptr<Work> work_;
  Context& context_;
  Handle pool_ = 0;
  SpinLock free_lock_;  // buffers_. A leaf
  std::vector<CommandBuffer> buffers_;
  std::vector<Handle> query_pools_;
  std::vector<Query> queries_;
};

}  // namespace hcq::vk
