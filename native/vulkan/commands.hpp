// The commands of a submit as this driver's queues take them, and runs of them recorded into command buffers.
#pragma once
#include <memory>
#include <vector>

#include "core/signal.hpp"
#include "vulkan/pipeline.hpp"

namespace hcq::vk {

class Recorder;

enum class Op : uint8_t { signal, wait, timestamp, barrier, exec, copy };

// What it points to is kept alive by whoever submitted it, until the last signal of the submit is set.
struct Command {
  Op op;
  void* object = nullptr;          // the Python object of the signal; borrowed
  SignalMemory* signal = nullptr;  // signal, wait, timestamp
  uint64_t value = 0;
  const Pipeline* pipeline = nullptr;  // exec
  const uint8_t* arguments = nullptr;
  uint32_t groups[3] = {0, 0, 0};
  uint64_t destination = 0, source = 0, bytes = 0;  // copy
};

// A command buffer of commands in a row, good for being submitted again where `again`.
struct Run {
  std::weak_ptr<Recorder> recorder;
  CommandBuffer buffer = nullptr;
  size_t end = 0;  // the first command that is not in it
  bool again = false;
  std::vector<uint8_t> arguments;  // what launches were given when it was recorded
  std::vector<uint64_t> blocks;    // memory that only this run uses
  std::vector<Imported> imported;
  ~Run();
};

struct Commands {
  std::vector<Command> list;
  bool bound = false;                      // submitted more than once
  std::vector<std::shared_ptr<Run>> runs;  // of a bound queue, by the first command; under the queue's lock
};

}  // namespace hcq::vk
