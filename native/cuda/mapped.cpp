// Signals as streams see them: their memory is mapped a second time for each context, and registered there
// (context.hpp). So it is no matter to others when a context goes, nor to the context when somebody's memory does; and
// shared pages stay the same ones after a fork.
#include <algorithm>

#include "cuda/context.hpp"
#include "platform/platform.hpp"

namespace hcq::cuda {

namespace {
constexpr uint64_t kPage = 4096;
constexpr size_t kMostPlaced = 256;  // signals in callers' memory that are mapped at a time: a page each

// Whether two addresses show the same memory: kernels before 4.14 map private memory "again" as other pages. By what
// nobody uses of a signal; two who do this at once may find that it isn't so, and the host sets the signal then.
bool same(SignalMemory* one, SignalMemory* other) {
  static std::atomic<uint64_t> next{1};
  uint64_t mark = next.fetch_add(1, std::memory_order_relaxed) << 32 | static_cast<uint32_t>(now_ns());
  uint64_t before = one->reserved[1];
  __atomic_store_n(&other->reserved[1], mark, __ATOMIC_SEQ_CST);  // one location, be it at two addresses
  bool is = __atomic_load_n(&one->reserved[1], __ATOMIC_SEQ_CST) == mark;
  __atomic_store_n(&other->reserved[1], before, __ATOMIC_SEQ_CST);
  return is;
}
}  // namespace

Mapped Context::map(void* page, uint64_t bytes) {
  Mapped made{reinterpret_cast<uint64_t>(page), bytes, 0, nullptr};
  if (!facts_.registers || !(made.alias = map_again(page, bytes))) return made;
  Current current(*this);
  if (api().host_register(made.alias, bytes, kDeviceMap) == kSuccess) {
    ++g_held.mapped;
    if (api().host_address(&made.device, made.alias, 0) == kSuccess) return made;
  }
  made.device = 0;
  unmap(made);
  made.alias = nullptr;
  return made;
}

void Context::unmap(const Mapped& mapped) {
  if (!mapped.alias) return;
  if (!abandoned() && api().host_unregister(mapped.alias) == kSuccess) --g_held.mapped;
  unmap_memory(mapped.alias, mapped.bytes);
}

Mapped Context::map_placed(const Signal* signal) {
  for (const Placed& each : placed_)
    if (each.signal == signal && each.id == signal->id) return each.mapped;
  if (placed_.size() == kMostPlaced) {
    // Nobody has a count of those that are gone: nothing of them is in flight.
    auto gone = [](const Placed& each) { return each.signal->refs.load(std::memory_order_acquire) == 0; };
    Current current(*this);
    for (const Placed& each : placed_)
      if (gone(each)) unmap(each.mapped);
    placed_.erase(std::remove_if(placed_.begin(), placed_.end(), gone), placed_.end());
    if (placed_.size() == kMostPlaced) return Mapped{};
  }
  uint64_t at = reinterpret_cast<uint64_t>(signal->memory), page = at / kPage * kPage;
  Mapped made;
  if (page_locked(at)) {
    made = Mapped{at, sizeof(SignalMemory), at, nullptr};
  } else if (at - page <= kPage - sizeof(SignalMemory)) {
    made = map(reinterpret_cast<void*>(page), kPage);
    if (made.device &&
        !same(signal->memory, reinterpret_cast<SignalMemory*>(reinterpret_cast<uint64_t>(made.alias) + (at - page)))) {
      Current current(*this);
      unmap(made);
      made = Mapped{};
    }
  }
  placed_.push_back(Placed{signal, signal->id, made});
  return made;
}

Mapped Context::mapped(const Signal* signal) {
  std::lock_guard<std::mutex> guard(mapped_lock_);
  if (!signal->pooled) return map_placed(signal);
  uint64_t slab = reinterpret_cast<uint64_t>(signal->memory) / kSignalSlab * kSignalSlab;
  auto [found, fresh] = slabs_.try_emplace(slab);
  if (fresh) found->second = map(reinterpret_cast<void*>(slab), kSignalSlab);
  return found->second;
}

void Context::unmap_all() {
  for (auto& [slab, mapped] : slabs_) unmap(mapped);
  for (const Placed& each : placed_) unmap(each.mapped);
  slabs_.clear();
  placed_.clear();
}

}  // namespace hcq::cuda
