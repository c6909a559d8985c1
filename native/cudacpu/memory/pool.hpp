// Memory pools: allocation in stream order. What does not live here: their entries (pool_api.cpp), memory of graphs.
#pragma once
#include <list>
#include <memory>
#include <mutex>

#include "memory/arena.hpp"
#include "memory/memory.hpp"
#include "stream/stream.hpp"

namespace cudacpu {

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  const CUmemPoolProps props;
  Device* const device;  // null: memory of the host
  CUmemoryPool handle = nullptr;
  std::atomic<uint64_t> threshold{0};           // bytes that stay reserved at a synchronization
  std::atomic<int> reuse[3] = {{1}, {1}, {1}};  // only told: reuse is by what has been freed in fact
  std::atomic<int> access[64];                  // CUmemAccess_flags of each device; only told

  Pool(const CUmemPoolProps& props, Device* device);
  // Makes one that has a handle.
  static std::shared_ptr<Pool> make(const CUmemPoolProps& props, Device* device);

  // Memory for the stream's next nodes. It may have been freed by earlier ones that haven't run yet.
  CUresult allocate(const std::shared_ptr<Stream>& stream, size_t bytes, CUdeviceptr* out);
  // Frees a range of the pool's that has been removed from the registry, when the stream comes to it.
  CUresult free(const std::shared_ptr<Stream>& stream, const RangePtr& range);
  Arena::Use use() { return arena_.use(); }
  void reset_high(bool reserved, bool used) { arena_.reset_high(reserved, used); }
  void trim(size_t keep_bytes) { arena_.trim(keep_bytes); }

 private:
  friend struct PoolFreeNode;
  // What a stream was told to free and has not come to.
  struct Pending {
    uint64_t base;
    size_t capacity;
    std::shared_ptr<Stream> stream;
  };
  using PendingPtr = std::shared_ptr<Pending>;

  uint64_t take(const std::shared_ptr<Stream>& stream, size_t bytes, size_t* capacity);
  void wait_for_pending();

  Arena arena_;
  std::mutex lock_;  // guards pending_; only the arena's is taken under it
  std::list<PendingPtr> pending_;
};

using PoolPtr = std::shared_ptr<Pool>;

// A device's own pool, and the one that cuMemAllocAsync takes from.
PoolPtr default_pool(Device& device);
PoolPtr current_pool(Device& device);
// The one of the host's memory, or of managed memory.
PoolPtr common_pool(bool managed);
void set_current_pool(Device& device, const PoolPtr& pool);
// The pool is no device's current one any more.
void forget_pool(const PoolPtr& pool);

// Gives all memory back that pools only hold for later: somebody needs it.
void empty_pools();
// Gives memory back that pools hold beyond their thresholds; after every synchronization.
void trim_pools();

}  // namespace cudacpu
