// Memory of a context: the device's by a pool, the host's page-locked, and words that both see.
#include <map>

#include "cuda/context.hpp"

namespace hcq::cuda {

namespace {
constexpr size_t kPage = 4096;
constexpr size_t kWordBytes = 64;  // one a cache line

struct Allocation {
  size_t bytes;
  Use use;
  bool pooled;
  Context* owner;
};

// All that is allocated, by address: whose memory an address is can be asked from another device.
struct Table {
  std::mutex lock;  // a leaf
  std::map<Address, Allocation> all;
};
// Never destroyed: memory is freed by finalizers, some of them after the process's own.
Table& table() {
  static auto* made = new Table;
  return *made;
}

// Whose memory `bytes` from an address on are.
bool find(Address at, Allocation* out, size_t bytes = 1) {
  Table& t = table();
  std::lock_guard<std::mutex> guard(t.lock);
  auto next = t.all.upper_bound(at);
  if (next == t.all.begin()) return false;
  --next;
  if (at + bytes > next->first + next->second.bytes) return false;
  *out = next->second;
  return true;
}
}  // namespace

Address Context::allocate(size_t bytes, Use use) {
  Current current(*this);
  Address at = 0;
  Allocation made{bytes, use, false, this};
  if (use == Use::both && facts_.managed) {
    check("cuMemAllocManaged", api().mem_alloc_managed(&at, bytes, kAttachGlobal));
  } else if (use != Use::device) {
    made.use = Use::host;
    void* memory = nullptr;
    check("cuMemHostAlloc", api().host_alloc(&memory, bytes, kPortable | kDeviceMap));
    at = reinterpret_cast<Address>(memory);
  } else if (pool_) {
    made.pooled = true;
    check("cuMemAllocFromPoolAsync", api().alloc_async(&at, bytes, pool_, memory_stream_));
    check("cuStreamSynchronize", api().stream_synchronize(memory_stream_));  // every queue may use it from now on
  } else {
    check("cuMemAlloc", api().mem_alloc(&at, bytes));
  }
  ++g_held.allocations;
  Table& t = table();
  std::lock_guard<std::mutex> guard(t.lock);
  t.all[at] = made;
  return at;
}

bool Context::free(Address at) {
  Allocation gone;
  {
    Table& t = table();
    std::lock_guard<std::mutex> guard(t.lock);
    auto found = t.all.find(at);
    if (found == t.all.end() || found->second.owner != this) return false;
    gone = found->second;
    t.all.erase(found);
  }
  --g_held.allocations;
  if (generation_ != g_generation || abandoned()) return true;
  Current current(*this);
  if (gone.pooled)
    api().free_async(at, memory_stream_);
  else if (gone.use == Use::host)
    api().host_free(reinterpret_cast<void*>(at));
  else
    api().mem_free(at);
  return true;
}

void Context::memory(uint64_t* free, uint64_t* total) const {
  Current current(*this);
  size_t left = 0, all = 0;
  check("cuMemGetInfo", api().mem_info(&left, &all));
  *free = left;
  *total = all;
}

bool Context::on_device(Address at) const {
  Allocation found;
  return find(at, &found) && found.owner == this && found.use == Use::device;
}

bool Context::reaches(Address at) {
  Allocation found;
  if (!find(at, &found)) return false;
  if (found.owner == this || found.use != Use::device) return true;
  // Copies between devices need no more; where the two reach each other they don't go by way of the host.
  int able = 0;
  if (api().can_access_peer(&able, facts_.ordinal, found.owner->facts_.ordinal) != kSuccess || !able) return true;
  if (found.owner->facts_.ordinal == facts_.ordinal) return true;
  Current current(*this);
  if (found.pooled) {
    AccessDescription access{MemLocation{1, facts_.ordinal}, 3};
    check("cuMemPoolSetAccess", api().pool_access(found.owner->pool_, &access, 1));
    return true;
  }
  Result result = api().enable_peer(found.owner->context_, 0);
  if (result != kPeerAlreadyEnabled) check("cuCtxEnablePeerAccess", result);
  return true;
}

bool Context::page_locked(Address at) const {
  Allocation found;
  return find(at, &found, sizeof(SignalMemory)) && found.owner == this && found.use == Use::host;
}

Word Context::take_word() {
  std::lock_guard<std::mutex> guard(words_lock_);
  if (free_words_.empty()) {
    Current current(*this);
    void* page = nullptr;
    check("cuMemHostAlloc", api().host_alloc(&page, kPage, kPortable | kDeviceMap));
    word_pages_.push_back(page);
    Address device = 0;
    check("cuMemHostGetDevicePointer", api().host_address(&device, page, 0));
    for (size_t at = kPage; at > 0; at -= kWordBytes) {
      auto* host = reinterpret_cast<std::atomic<uint64_t>*>(static_cast<uint8_t*>(page) + at - kWordBytes);
      free_words_.push_back(Word{host, device + at - kWordBytes});
    }
  }
  Word word = free_words_.back();
  free_words_.pop_back();
  word.host->store(0, std::memory_order_relaxed);
  return word;
}

void Context::give_word(Word word) {
  std::lock_guard<std::mutex> guard(words_lock_);
  free_words_.push_back(word);
}

}  // namespace hcq::cuda
