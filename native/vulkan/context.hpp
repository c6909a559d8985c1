// An open Vulkan device: its handles, what it has, and its memory. Queues stand on it (work.hpp, lane.hpp).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "core/base.hpp"
#include "vulkan/loader.hpp"

namespace hcq::vk {

// API objects alive in this process, for tests that look for leaks.
enum class Kind : uint8_t { device, memory, buffer, module, layout, pipeline, cache, semaphore, pool, queries, count };
extern std::atomic<int64_t> g_alive[static_cast<size_t>(Kind::count)];
inline void made(Kind kind) { g_alive[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed); }
inline void gone(Kind kind) { g_alive[static_cast<size_t>(kind)].fetch_sub(1, std::memory_order_relaxed); }

// What a physical device is, found out without opening it.
struct Facts {
  Properties properties;
  std::string driver, driver_info;
  FloatControls floats;
  SubgroupProperties subgroups;
  uint64_t max_allocation, max_buffer;
  uint64_t import_alignment;  // of host memory; 0: it can't be imported
  bool calibrated;            // tells its own clock and the host's together
  Features features;
  Features11 features11;
  Features12 features12;
  Features13 features13;
  MemoryProperties memory;
  uint32_t family, timestamp_bits;  // of the queues that compute; family ~0: none
};
Facts facts_of(Loaded& loaded, PhysicalDevice device);

// What memory is for: work of the device; the host's to write and the device's to read; both.
enum class Use : uint8_t { device, host, shared };

// Where an address lies: `bytes` from there on are in the same buffer.
struct Place {
  Handle buffer = 0;
  uint64_t offset = 0, bytes = 0;
  uint64_t device_address = 0;
};

// Memory of the host that the device uses for a while.
struct Imported {
  Handle buffer = 0, memory = 0;
};

class Context {
 public:
  // `apart`: as where the host and the device have addresses of their own, though they have not: the addresses of
  // device memory are then nobody's, and what is not translated fails. Throws Unavailable, Failure.
  Context(Loaded& loaded, PhysicalDevice physical, bool apart);
  ~Context() { close(); }
  Context(const Context&) = delete;

  // Nothing must run any more. A device that was lost while something ran is left to the process's end; memory that
  // somebody looks at stays until they don't.
  void close();
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go();
  bool closed() const { return closed_; }
  bool usable() const { return !closed_ && !busy && generation == g_generation; }

  const uint32_t generation = g_generation;
  Facts facts;
  LogicalDevice device = nullptr;
  DeviceTable call;
  DeviceQueue queue = nullptr;
  // Whether addresses are the same for host and device, and all memory is mapped: the host works in place then.
  bool unified = false;
  const bool apart;
  std::atomic<bool> busy{false};    // closing: work is still on the device, and nothing of it is given back any more
  std::atomic<int32_t> failing{0};  // for tests: what the next submit is answered with

  // Held, shared, by who is in a call that needs the device open; alone by who closes it. Taken without the GIL, before
  // all other locks.
  std::shared_mutex presence;

  // Memory. Addresses are the device's, for mapped memory of a device that is not unified the host's. Any thread.
  uint64_t allocate(uint64_t size, Use use);  // throws Failure
  void free(uint64_t address);
  bool find(uint64_t address, Place* place);
  bool import(uint64_t address, uint64_t bytes, Imported* imported, uint64_t* offset);
  void release(const Imported& imported);
  uint64_t allocated();  // bytes taken from the driver
  // How often memory went back to the driver: what is at its addresses then may be another buffer. Relaxed: who uses an
  // address again was told that it is good.
  std::atomic<uint64_t> dropped{0};

  // Pipelines and what belongs to them go with the device, if not before. The lock is a leaf.
  std::mutex objects_lock;
  std::set<class Module*> modules;

 private:
  struct Block {
    Handle buffer = 0, memory = 0;
    uint64_t address = 0, device_address = 0, size = 0;
    Use use = Use::device;
    bool whole = false;                      // for one allocation
    std::map<uint64_t, uint64_t> free_list;  // size by offset
    uint64_t used = 0;
  };
  void open(Loaded& loaded, PhysicalDevice physical);
  uint32_t type_of(uint32_t allowed, Use use) const;
  Block* make_block(uint64_t size, Use use);
  void drop_block(Block* block);
  Handle make_buffer(uint64_t size, void* next);

  void destroy();

  std::atomic<bool> closed_{false};
  std::atomic<int64_t> holders_{1};  // whoever looks at memory, and the device itself until it is closed
  std::mutex lock_;                  // the maps; a leaf
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;      // by address
  std::map<uint64_t, std::pair<Block*, uint64_t>> taken_;  // allocations by address: block and size
  uint64_t allocated_ = 0;
};

// In a call that needs the device open; throws Failure where it was closed.
class Presence {
 public:
  explicit Presence(Context& context) : lock_(context.presence) {
    if (context.closed()) throw Failure{"the device is closed", kDeviceLost};
  }

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace hcq::vk
