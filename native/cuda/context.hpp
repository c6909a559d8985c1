// A device's primary context: what queues, programs and memory of it share. Kept until the last of them is gone.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base.hpp"
#include "core/signal.hpp"
#include "cuda/api.hpp"

namespace hcq::cuda {

// What the driver says of a device.
struct Facts {
  Ordinal ordinal;
  std::string name;
  uint64_t memory;
  int driver_version;
  int group_items, group_size[3], groups[3];
  int local_memory, local_memory_most, multiprocessors, warp, major, minor;
  int unified, maps_host, integrated, managed, cooperative, copy_engines, stream_operations, pools, registers;
  int pci_domain, pci_bus, pci_device;
  std::vector<Ordinal> peers;  // whose memory it reaches
};

std::vector<Facts> devices();  // throws Unavailable, Failure

enum class Use : uint8_t { device, host, both };

class Context;

// How many of CUDA's objects are held here. Relaxed: for tests of leaks, when nothing else runs.
struct Held {
  std::atomic<int64_t> contexts{0}, streams{0}, modules{0}, allocations{0}, graphs{0}, mapped{0};
  std::atomic<int64_t> graphs_made{0};  // in all
};
extern Held g_held;

// Makes a context this thread's for a while; nothing where it is already.
class Current {
 public:
  explicit Current(const Context& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_;
};

// A 64-bit word that device and host see, at an address for each.
struct Word {
  std::atomic<uint64_t>* host;
  Address device;
};

// Memory of signals as a context has it: `bytes` from `start` on are at `device` there; 0: they are nowhere.
struct Mapped {
  uint64_t start = 0, bytes = 0;
  Address device = 0;
  void* alias = nullptr;  // the second mapping
  bool holds(const void* p) const { return reinterpret_cast<uint64_t>(p) - start < bytes; }
  Address of(const void* p) const { return device ? device + (reinterpret_cast<uint64_t>(p) - start) : 0; }
};

// A signal in a caller's memory. Records of signals are recycled with another number, never freed.
struct Placed {
  const Signal* signal;
  uint64_t id;
  Mapped mapped;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // Opens a device; throws Unavailable, Failure. `keep`: bytes that freed memory may keep from the system.
  static std::shared_ptr<Context> open(const Facts& facts, uint64_t keep);
  ~Context();

  const Facts& facts() const { return facts_; }
  Handle handle() const { return context_; }
  // Whether streams write and await words of memory; else events say what is over.
  bool words() const { return words_; }

  Address allocate(size_t bytes, Use use);  // throws Failure
  // Of allocate's; the device must be well, and nothing use it any more. False: nobody's here.
  bool free(Address at);
  bool on_device(Address at) const;  // whether it is this device's own memory, of allocate's
  void memory(uint64_t* free, uint64_t* total) const;
  // Whether this device's queues reach the memory at `at`: its own, another device's, the host's. Throws Failure.
  bool reaches(Address at);
  Result state() const;  // kSuccess, kNotReady, or an error that stays
  // CUDA reported an error that stays with the context: nothing of it is given back any more.
  void abandon() { abandoned_ = true; }
  // Ends a context that such an error is in, so that its device can be opened anew. Nothing that is left of it is
  // touched after that.
  void end();
  bool abandoned() const { return abandoned_ || gone(); }
  bool broken() const;  // whether such an error is in it, told or not

  Word take_word();  // 0; throws Failure
  void give_word(Word word);
  // The memory around a signal, as streams of this context write it; they can't where that has no device address.
  Mapped mapped(const Signal* signal);

  // When `end` happened and `begin` was, in ns of CLOCK_MONOTONIC; both are over, and were given at `given`. The event
  // `*end` may be changed for another. False: CUDA doesn't say.
  bool times(Handle begin, Handle* end, uint64_t given, uint64_t* started, uint64_t* ended);
  void set_clock(Handle idle_stream);  // waits for that

 private:
  explicit Context(const Facts& facts) : facts_(facts) {}
  bool gone() const;  // another Context of the same device has ended the primary context that both had
  void start(uint64_t keep);

  Facts facts_;
  uint32_t generation_ = g_generation;
  Handle context_ = nullptr;
  Handle pool_ = nullptr;           // null: there are none
  Handle memory_stream_ = nullptr;  // allocations and frees of the pool, and nothing else
  bool words_ = false;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> ended_{false};
  uint32_t resets_ = 0;  // of the device, when this was opened

  std::mutex words_lock_;  // a leaf
  std::vector<void*> word_pages_;
  std::vector<Word> free_words_;

  bool page_locked(Address at) const;  // a signal's memory there, by allocate() of this context
  Mapped map(void* page, uint64_t bytes);
  Mapped map_placed(const Signal* signal);
  void unmap(const Mapped& mapped);  // nothing is written there any more
  void unmap_all();

  std::mutex mapped_lock_;  // a leaf
  std::unordered_map<uint64_t, Mapped> slabs_;
  std::vector<Placed> placed_;

  std::mutex clock_lock_;    // a leaf
  Handle anchor_ = nullptr;  // an event of which the host's time is known
  uint64_t anchor_at_ = 0;
};

}  // namespace hcq::cuda
