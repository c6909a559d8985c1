// Devices and their primary contexts (context.hpp). Memory is in memory.cpp, time in clock.cpp.
#include "cuda/context.hpp"

#include <algorithm>
#include <cstring>

namespace hcq::cuda {

Held g_held;

namespace {
std::mutex g_resets_lock;  // opening and ending contexts; a leaf

// How often a device's primary context was reset here.
std::atomic<uint32_t>& resets_of(Ordinal ordinal) {
  static std::atomic<uint32_t> all[256] = {};
  return all[static_cast<unsigned>(ordinal) % 256];
}

enum Attribute {
  kGroupItems = 1,
  kGroupX = 2,
  kGridX = 5,
  kSharedMemory = 8,
  kWarp = 10,
  kMultiprocessors = 16,
  kIntegrated = 18,
  kMapsHost = 19,
  kPciBus = 33,
  kPciDevice = 34,
  kCopyEngines = 40,
  kUnifiedAddresses = 41,
  kPciDomain = 50,
  kMajor = 75,
  kMinor = 76,
  kConcurrentManaged = 89,
  kCooperative = 95,
  kSharedMemoryOptin = 97,
  kRegistersHost = 99,
  kPools = 115,
  kStreamOperations64 = 122,
};

int attribute(Ordinal device, int which) {
  int value = 0;
  return api().device_attribute(&value, which, device) == kSuccess ? value : 0;  // a newer one than the driver's
}

Facts facts_of(int index) {
  Facts f{};
  check("cuDeviceGet", api().device_get(&f.ordinal, index));
  char name[256] = {};
  check("cuDeviceGetName", api().device_name(name, sizeof name - 1, f.ordinal));
  f.name = name;
  size_t bytes = 0;
  check("cuDeviceTotalMem", api().device_total(&bytes, f.ordinal));
  f.memory = bytes;
  check("cuDriverGetVersion", api().driver_version(&f.driver_version));
  auto ask = [&](int which) { return attribute(f.ordinal, which); };
  f.group_items = ask(kGroupItems);
  for (int i = 0; i < 3; ++i) {
    f.group_size[i] = ask(kGroupX + i);
    f.groups[i] = ask(kGridX + i);
  }
  f.local_memory = ask(kSharedMemory);
  f.local_memory_most = std::max(f.local_memory, ask(kSharedMemoryOptin));
  f.multiprocessors = ask(kMultiprocessors);
  f.warp = ask(kWarp);
  f.major = ask(kMajor);
  f.minor = ask(kMinor);
  f.unified = ask(kUnifiedAddresses);
  f.maps_host = ask(kMapsHost);
  f.integrated = ask(kIntegrated);
  f.managed = ask(kConcurrentManaged);
  f.cooperative = ask(kCooperative);
  f.copy_engines = ask(kCopyEngines);
  f.stream_operations = ask(kStreamOperations64);
  f.pools = ask(kPools);
  f.registers = ask(kRegistersHost);
  f.pci_domain = ask(kPciDomain);
  f.pci_bus = ask(kPciBus);
  f.pci_device = ask(kPciDevice);
  return f;
}
}  // namespace

std::vector<Facts> devices() {
  load();
  int count = 0;
  check("cuDeviceGetCount", api().device_count(&count));
  std::vector<Facts> found;
  for (int i = 0; i < count; ++i) found.push_back(facts_of(i));
  for (Facts& one : found) {
    for (const Facts& other : found) {
      int able = 0;
      if (one.ordinal == other.ordinal) continue;
      if (api().can_access_peer(&able, one.ordinal, other.ordinal) == kSuccess && able)
        one.peers.push_back(other.ordinal);
    }
  }
  return found;
}

Current::Current(const Context& context) : pushed_(false) {
  Handle now = nullptr;
  if (api().current(&now) == kSuccess && now == context.handle()) return;
  pushed_ = api().push(context.handle()) == kSuccess;
}

Current::~Current() {
  Handle ours = nullptr;
  if (pushed_) api().pop(&ours);
}

std::shared_ptr<Context> Context::open(const Facts& facts, uint64_t keep) {
  std::shared_ptr<Context> made(new Context(facts));
  made->start(keep);
  return made;
}

bool Context::gone() const { return resets_of(facts_.ordinal).load(std::memory_order_acquire) != resets_; }

void Context::start(uint64_t keep) {
  {
    std::lock_guard<std::mutex> guard(g_resets_lock);
    check("cuDevicePrimaryCtxRetain", api().primary_retain(&context_, facts_.ordinal));
    resets_ = resets_of(facts_.ordinal).load(std::memory_order_relaxed);
  }
  ++g_held.contexts;
  Current current(*this);
  words_ = facts_.stream_operations && api().write_value && api().wait_value && api().batch_operations;
  check("cuStreamCreate", api().stream_create(&memory_stream_, kNonBlocking));
  ++g_held.streams;
  if (facts_.pools && api().pool_create && api().alloc_async && api().free_async) {
    PoolProperties properties{};
    properties.allocation_type = 1;
    properties.location = MemLocation{1, facts_.ordinal};
    check("cuMemPoolCreate", api().pool_create(&pool_, &properties));
    check("cuMemPoolSetAttribute", api().pool_set(pool_, kReleaseThreshold, &keep));
  }
  set_clock(memory_stream_);
}

Context::~Context() {
  if (generation_ != g_generation || !context_) return;  // inherited: the parent's driver is not here
  --g_held.contexts;
  if (memory_stream_) --g_held.streams;
  end();
  if (ended_) {
    unmap_all();
    return;
  }
  {
    Current current(*this);
    unmap_all();
    if (anchor_) api().event_destroy(anchor_);
    for (void* page : word_pages_) api().host_free(page);
    if (pool_) api().pool_destroy(pool_);
    if (memory_stream_) api().stream_destroy(memory_stream_);
  }
  api().primary_release(facts_.ordinal);
}

Result Context::state() const {
  Current current(*this);
  return api().stream_query(memory_stream_);  // an error that stays shows everywhere
}

bool Context::broken() const {
  if (abandoned() || !memory_stream_) return abandoned();
  Result now = state();
  return now != kSuccess && now != kNotReady;
}

void Context::end() {
  std::lock_guard<std::mutex> guard(g_resets_lock);
  bool gone = this->gone();
  if (!gone && broken()) abandoned_ = true;
  if (!abandoned() || ended_.exchange(true)) return;
  api().primary_release(facts_.ordinal);
  if (gone) return;  // another one's end took all of it, and the device may have been opened anew since
  // Whoever else holds this context has no use of it any more; without this, opening anew would give the broken one.
  api().primary_reset(facts_.ordinal);
  resets_of(facts_.ordinal).fetch_add(1, std::memory_order_release);  // all that was there is gone
}

}  // namespace hcq::cuda
