// Memory from the system, in slabs with guard pages around them. What does not live here: what its addresses mean to
// the API (memory.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "device/device.hpp"

namespace cudacpu {

// Cuts blocks out of slabs. A slab has pages that nobody may touch before and after it. Safe to share by threads.
class Arena {
 public:
  // Of a device's memory, or of the host's without one. `keep`: slabs without blocks stay until trim().
  // `apart`: every block has a slab of its own and ends at its end, goes when it is released, and is not handed out
  // again soon.
  Arena(Device* device, bool keep, bool apart) : device_(device), keep_(keep && !apart), apart_(apart) {}
  ~Arena();

  // Address of a block, aligned to 512 bytes (256 when apart); 0 where there is no memory.
  uint64_t allocate(size_t bytes);
  // Gives a block back.
  void release(uint64_t address);
  // Gives slabs without blocks back to the system, down to `keep_bytes` of slabs in all.
  void trim(size_t keep_bytes);

  struct Use {
    size_t reserved, reserved_high, used, used_high;  // bytes of slabs and of blocks
  };
  Use use();
  void reset_high(bool reserved, bool used);

 private:
  struct Slab {
    uint64_t base;      // of the mapping, guards included
    uint64_t data;      // what blocks are cut from
    size_t bytes;       // of it
    size_t blocks = 0;  // that are in use
  };
  struct Block {
    size_t bytes;
    bool free;
    Slab* slab;
  };
  using Blocks = std::map<uint64_t, Block>;

  Slab* make_slab(size_t bytes);
  void drop_slab(Slab* slab);
  void set_free(Blocks::iterator block, bool free);

  Device* const device_;
  const bool keep_, apart_;
  std::mutex lock_;                             // guards all that follows; only the system is called under it
  Blocks blocks_;                               // side by side: every byte of every slab is in one
  std::set<std::pair<size_t, uint64_t>> free_;  // the free ones by size
  std::map<uint64_t, Slab> slabs_;
  Use use_ = {};
};

}  // namespace cudacpu
