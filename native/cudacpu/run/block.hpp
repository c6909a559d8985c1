// One block of a grid: its threads as coroutines, resumed in order, and what they wait for. What does not live here:
// which block runs where (grid.cpp), memory (room.hpp), operations of a warp (warp.hpp).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "run/check.hpp"
#include "run/grid.hpp"
#include "run/room.hpp"
#include "run/warp.hpp"

namespace cudacpu {

// What a step left behind.
enum class State {
  ended,    // every thread returned
  waiting,  // all that are left wait for what others write (yield)
  stuck,    // all that are left stand, and nothing can let them go on
};

constexpr uint32_t kBarriers = 17;  // the last one is that of a cluster, which is one block

// Not copied or moved while a block runs: threads point to it. On one host thread at a time. What it calls may leave it
// by longjmp; then `begin` starts anew.
class BlockRun {
 public:
  // For the blocks of one grid. False: no memory.
  bool prepare(const Grid* grid, const Code& code, void* owner);
  void begin(uint32_t x, uint32_t y, uint32_t z, uint32_t smid);

  State step();  // kind threads: runs until every thread ended or waits
  // Kinds loop and regions: all of each of these blocks, by their numbers, unless the grid has failed.
  void run_row(uint64_t first, uint64_t end);

  const Block& block() const { return block_; }
  const Thread* current() const { return current_; }  // the thread that runs; null: not known
  Check* check() const { return check_.get(); }       // null: nothing is looked for
  void* frame(uint64_t bytes) { return room_.frame(bytes); }
  std::string standing() const;  // who stands where, for a message

 private:
  struct Barrier {
    uint32_t arrived;    // threads, and those that only arrive
    uint32_t expected;   // 0: all that are left
    uint32_t warps;      // bit n: warp n has been here; blocks have at most 32 warps
    uint32_t lanes[32];  // of each of them, those that have been here
  };

  void run_warp(uint32_t number);
  void settle(Warp& warp, uint32_t number, uint32_t bit, Thread& thread);
  void arrive(uint32_t warp, const Thread& thread);
  bool complete(uint32_t barrier);
  bool complete_all();
  void release(uint32_t barrier);

  Room room_;
  std::unique_ptr<Check> check_;
  Code code_;
  Block block_{};
  Thread* current_ = nullptr;
  uint32_t count_ = 0, live_ = 0, used_ = 0;  // threads, those that have not returned; bits of barriers in use
  std::vector<Warp> warps_;
  Barrier barriers_[kBarriers] = {};
};

}  // namespace cudacpu
