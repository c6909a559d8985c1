// A device of command queues: its queues, timelines, faults and injected failures. Host CPU and NULL devices are these.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "core/kernargs.hpp"
#include "core/queue.hpp"

namespace hcq {

struct Interface;

// A signal and the next value to give it; own launches reserve and publish under the lock, so values arrive in order.
struct Timeline {
  Signal* signal = nullptr;
  std::atomic<uint64_t> next{1};
  SpinLock lock;
};

struct Limits {
  uint64_t groups[3] = {0x7fffffff, 0x7fffffff, 0x7fffffff};
  uint64_t items[3] = {1024, 1024, 1024};
  uint64_t group_items = 1024;
};

enum class InjectWhat : uint8_t { exec, copy, submit };
struct Injection {
  InjectWhat what;
  int64_t countdown;  // fires when it reaches 0
  uint64_t token;     // the Python side's exception; 0: only a delay
  uint64_t delay_ns;
  uint64_t id;
};

struct Device {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  std::string name;
  Limits limits;
  Timeline timeline;
  std::atomic<Queue*> compute{nullptr}, copy{nullptr};
  std::mutex make_lock;                 // creates queues; never held while stepping
  std::vector<Queue*> streams;          // under make_lock
  std::vector<Queue*> lanes;            // of graphs, shared by all of them; under make_lock
  std::atomic<uint64_t> fault{0};       // error word of the first failure: the device is lost
  std::atomic<uint64_t> reported{0};    // error of another device that dropped a submit of ours, until told
  std::atomic<uint32_t> injections{0};  // how many are armed: the processor looks only when not 0
  SpinLock inject_lock;
  std::vector<Injection> armed;  // under inject_lock
  std::atomic<bool> closed{false};
  KernargsArena kernargs;  // under the GIL
  // Who carries out the commands of its queues, with that one's own idea of the device; null: our threads. Set before
  // the first queue is made.
  const Interface* interface = nullptr;
  void* context = nullptr;
};

Device* device_create(std::string name);
void device_retain(Device*);
void device_release(Device*);
Queue* device_queue(Device*, QueueKind);  // made at first use
Queue* device_stream(Device*);            // another compute queue; the caller owns a reference
Queue* device_lane(Device*, size_t i);    // the compute queue, or for i > 0 one that graphs use beside it

// A failure's record; error words are (pid << 32 | index + 1).
struct Fault {
  std::string device, command, message;
  uint64_t token = 0;       // the Python side's exception, if it has one
  int system = 0;           // errno of a failed system call; -1: a file ended too early
  std::string path;         // its file
  std::string report = "";  // what the queues were at when it lost its device
};
uint64_t fault_record(Fault fault);
bool fault_lookup(uint64_t error, Fault* out);  // false: of another process, or unknown

// Marks the device lost with this error (the first one stays), and lets its queues drop what they hold. What they were
// at is noted with the fault before. `mine`: the queue whose step lock the caller holds, if any.
void device_lose(Device*, uint64_t error, Queue* mine = nullptr);

// Whether an injected failure fires for this command; sleeps its delay. Returns the error word or 0.
uint64_t injected(Device*, InjectWhat, const char* command);

void faults_after_fork();
}  // namespace hcq
