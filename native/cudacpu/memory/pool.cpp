// Memory pools: see pool.hpp.
#include "memory/pool.hpp"

#include <algorithm>

#include "api/handle.hpp"

namespace cudacpu {
namespace {

// Whether some pool holds more than its threshold. Relaxed: who misses it trims at the next synchronization.
std::atomic<bool> excess{false};

struct Pools {
  std::mutex lock;  // guards the rest; nothing is called under it but the making of a pool
  PoolPtr defaults[64], current[64];
  PoolPtr common[2];  // the host's, managed
  std::vector<std::weak_ptr<Pool>> all;
};

Pools& pools() {
  static auto* one = new Pools();  // never destroyed: its memory may be in use at exit
  return *one;
}

std::vector<PoolPtr> live_pools() {
  std::vector<PoolPtr> found;
  std::lock_guard<std::mutex> hold(pools().lock);
  for (const auto& one : pools().all) {
    if (PoolPtr pool = one.lock()) found.push_back(std::move(pool));
  }
  return found;
}

Memory kind_of(const CUmemPoolProps& props) {
  if (props.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED) return Memory::managed;
  return props.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Memory::pooled : Memory::host;
}

}  // namespace

// Gives a block back when its stream comes to it, unless a later allocation of the stream has taken it over.
struct PoolFreeNode : Node {
  PoolPtr pool;
  Pool::PendingPtr pending;
  RangePtr kept;  // for the checks; else null
  PoolFreeNode(PoolPtr pool, Pool::PendingPtr pending, RangePtr kept)
      : pool(std::move(pool)), pending(std::move(pending)), kept(std::move(kept)) {}
  CUgraphNodeType kind() const override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  CUresult run(Context& context) const override { return skip(context, CUDA_SUCCESS), CUDA_SUCCESS; }
  bool brief() const override { return true; }
  void skip(Context&, CUresult) const override {
    if (kept) leave(kept);
    {
      std::lock_guard<std::mutex> hold(pool->lock_);
      auto found = std::find(pool->pending_.begin(), pool->pending_.end(), pending);
      if (found == pool->pending_.end()) return;
      pool->pending_.erase(found);
      pool->arena_.release(pending->base);
    }
    if (pool->use().reserved > pool->threshold.load(std::memory_order_relaxed)) {
      excess.store(true, std::memory_order_relaxed);
    }
  }
};

Pool::Pool(const CUmemPoolProps& props, Device* device)
    : props(props), device(device), arena_(device, true, checking()) {
  for (auto& one : access) one.store(CU_MEM_ACCESS_FLAGS_PROT_NONE, std::memory_order_relaxed);  // nobody has it yet
  if (device) access[device->ordinal].store(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, std::memory_order_relaxed);
}

PoolPtr Pool::make(const CUmemPoolProps& props, Device* device) {
  auto pool = std::make_shared<Pool>(props, device);
  pool->handle = static_cast<CUmemoryPool>(handles<Pool>().add(pool));
  std::lock_guard<std::mutex> hold(pools().lock);
  auto& all = pools().all;
  all.erase(std::remove_if(all.begin(), all.end(), [](auto& one) { return one.expired(); }), all.end());
  all.push_back(pool);
  return pool;
}

uint64_t Pool::take(const std::shared_ptr<Stream>& stream, size_t bytes, size_t* capacity) {
  std::lock_guard<std::mutex> hold(lock_);
  for (auto at = pending_.begin(); at != pending_.end(); at++) {
    const Pending& one = **at;
    if (one.stream != stream || one.capacity < bytes || one.capacity / 2 > bytes) continue;
    uint64_t base = one.base;
    *capacity = one.capacity;
    pending_.erase(at);
    return base;
  }
  *capacity = bytes;
  if (props.maxSize && arena_.use().used + bytes > props.maxSize) return 0;
  return arena_.allocate(bytes);
}

void Pool::wait_for_pending() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard<std::mutex> hold(lock_);
    for (const PendingPtr& one : pending_) streams.push_back(one->stream);
  }
  for (const auto& stream : streams) synchronize(stream);
}

CUresult Pool::allocate(const std::shared_ptr<Stream>& stream, size_t bytes, CUdeviceptr* out) {
  size_t capacity;
  uint64_t base = take(stream, bytes, &capacity);
  if (!base) {
    wait_for_pending();
    base = take(stream, bytes, &capacity);
  }
  if (!base) {  // what pools hold for later
    empty_pools();
    base = take(stream, bytes, &capacity);
  }
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_shared<Range>(base, bytes, kind_of(props), &stream->context, device);
  range->pool = shared_from_this();
  range->capacity = capacity;
  range->release = [arena = &arena_, base] { arena->release(base); };
  add_range(range);
  *out = base;
  return CUDA_SUCCESS;
}

CUresult Pool::free(const std::shared_ptr<Stream>& stream, const RangePtr& range) {
  auto pending = std::make_shared<Pending>(Pending{range->base, range->capacity, stream});
  {
    std::lock_guard<std::mutex> hold(lock_);
    pending_.push_back(pending);
  }
  if (checking()) keep_for_queued(range);
  return enqueue(stream, std::make_shared<PoolFreeNode>(shared_from_this(), pending, checking() ? range : nullptr));
}

PoolPtr common_pool(bool managed) {
  PoolPtr& place = pools().common[managed];
  {
    std::lock_guard<std::mutex> hold(pools().lock);
    if (place) return place;
  }
  CUmemPoolProps props = {};
  props.allocType = managed ? CU_MEM_ALLOCATION_TYPE_MANAGED : CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = managed ? CU_MEM_LOCATION_TYPE_NONE : CU_MEM_LOCATION_TYPE_HOST;
  PoolPtr made = Pool::make(props, nullptr);
  std::lock_guard<std::mutex> hold(pools().lock);
  if (!place) place = std::move(made);  // another thread may have been faster
  return place;
}

PoolPtr default_pool(Device& device) {
  {
    std::lock_guard<std::mutex> hold(pools().lock);
    if (pools().defaults[device.ordinal]) return pools().defaults[device.ordinal];
  }
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
  PoolPtr made = Pool::make(props, &device);
  std::lock_guard<std::mutex> hold(pools().lock);
  PoolPtr& kept = pools().defaults[device.ordinal];
  if (!kept) kept = made;
  return kept;
}

PoolPtr current_pool(Device& device) {
  {
    std::lock_guard<std::mutex> hold(pools().lock);
    if (pools().current[device.ordinal]) return pools().current[device.ordinal];
  }
  return default_pool(device);
}

void set_current_pool(Device& device, const PoolPtr& pool) {
  std::lock_guard<std::mutex> hold(pools().lock);
  pools().current[device.ordinal] = pool;
}

void forget_pool(const PoolPtr& pool) {
  std::lock_guard<std::mutex> hold(pools().lock);
  for (PoolPtr& current : pools().current) {
    if (current == pool) current.reset();
  }
}

void empty_pools() {
  for (const PoolPtr& pool : live_pools()) pool->trim(0);
}

void trim_pools() {
  // One of the threads that come here does it. Relaxed: the arena's lock orders what is trimmed.
  if (!excess.load(std::memory_order_relaxed) || !excess.exchange(false, std::memory_order_relaxed)) return;
  for (const PoolPtr& pool : live_pools()) pool->trim(pool->threshold.load(std::memory_order_relaxed));
}

}  // namespace cudacpu
