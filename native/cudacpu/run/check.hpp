// What HCQ_CUDACPU_CHECK=1 looks for while a block runs: accesses out of bounds or misaligned, reads of shared memory
// that nobody wrote, races between the block's threads, barriers that threads reach in different places. Compiled code
// tells of its accesses (src/hcq/cudacpu/lower/checks.py), the executor of its barriers. What does not live here: how a
// failure is told (fault.hpp), where allocations are (memory.hpp).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "run/abi.hpp"
#include "run/warp.hpp"

namespace cudacpu {

// What a thread does with the bytes, and the state space that the instruction names.
enum class Access : uint32_t { read = 0, write = 1, read_strong = 2, write_strong = 3, atomic = 4 };
enum class Space : uint32_t { generic = 0, global = 1, shared = 2, local = 3 };

// A finding ends the block: everything that finds something leaves by fault.hpp's `fail_with`, and holds nothing then
// that would have to be destroyed.
class Check {
 public:
  Check(const Block* block, uint32_t threads);

  void begin();  // the block's memory is as good as new
  void access(uint32_t thread, uint64_t address, uint32_t bytes, Access access, Space space, uint32_t line);
  // A barrier lets these threads go on. `all`: they are all that are left. `counted`: it was told how many to wait for.
  void barrier(uint32_t number, const Warp* warps, const uint32_t* masks, size_t count, bool all, bool counted);
  void arrive(uint32_t number, uint32_t thread);  // it goes on at once
  void warp_barrier(const Warp& warp, uint32_t members);
  // A thread allocates memory, which another may have had before, and frees it.
  void allocated(void* at, uint64_t bytes);
  static void freed(void* at);

 private:
  // For each thread the last of its steps that is known to have come before. Empty: what `floor_` says.
  using Clocks = std::vector<uint32_t>;
  // Who touched a byte last: a writer, one that changed it by an atomic, and two readers. A step of 0 is none.
  struct Cell {
    uint32_t written, changed, read[2];
    uint32_t round;  // shared memory: the block that wrote the byte; others did not
    uint16_t writer, changer, reader[2];
  };
  struct Granule {
    Cell cells[8];
  };

  void shared(uint32_t thread, uint64_t address, uint32_t bytes, Access access, uint32_t line);
  void global(uint32_t thread, uint64_t address, uint32_t bytes, Access access, uint32_t line);
  void touch(Cell& cell, uint32_t thread, uint64_t address, Access access, const char* memory, uint32_t line);
  void order(uint32_t thread, uint64_t address, Access access);
  bool before(uint32_t other, uint32_t step, uint32_t thread) const;
  void join(Clocks& into, uint32_t thread) const;
  void learn(uint32_t thread, const Clocks& from);
  [[noreturn]] void found(uint32_t thread, uint32_t result, uint32_t line, uint64_t address, const char* format, ...)
      __attribute__((format(printf, 6, 7)));

  const Block* const block_;
  const uint32_t threads_;
  uint32_t round_ = 0;
  Clocks own_, floor_;  // each thread's step; what all know of it
  std::vector<Clocks> known_;
  Clocks arrived_[16];  // of those that went on at once, by barrier
  std::vector<Cell> shared_;
  std::unordered_map<uint64_t, Granule> global_;  // by address / 8
  std::unordered_map<uint64_t, Clocks> words_;    // what atomics on an address hand on
  // The last range that held an access, so that the registry is not asked each time.
  uint64_t range_ = 0, range_bytes_ = 0;
};

}  // namespace cudacpu
