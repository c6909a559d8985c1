// Leaving a kernel that failed: what compiled code calls, and signals. What does not live here: who is told (grid.cpp).
#pragma once
#include <setjmp.h>

#include <atomic>
#include <cstdint>

#include "api/api.hpp"
#include "run/abi.hpp"

namespace cudacpu {

class BlockRun;

// The first failure of a grid, as it was found: by a signal handler perhaps, so without anything that allocates.
struct Failure {
  uint32_t result = 0;  // a CUresult
  uint32_t ctaid[3] = {};
  uint32_t tid[3] = {};
  bool has_thread = false, has_address = false;
  uint32_t line = 0;  // PTX; 0: not known
  uint64_t address = 0;
  uint64_t instruction = 0;   // address of the one that failed; 0: not known
  uint8_t* shared = nullptr;  // the block's shared memory
  int signal = 0;
  char text[256] = {};  // what a check found
};

// What a host thread runs. `escape` is where it goes on when the block failed.
struct Running {
  sigjmp_buf escape;
  BlockRun* block = nullptr;  // null: none
  Grid* grid = nullptr;
  Failure* failure = nullptr;  // the grid's; belongs to whoever raised `grid->failed` from 0
};

// The thread's own. Signals look at it: null while no kernel runs.
void set_running(Running* running);

// Catches SIGSEGV, SIGBUS, SIGFPE and SIGILL of kernels; those of others go to whoever caught them before. Called
// before each grid, for somebody may have put a handler of theirs since. Gives the thread a stack for handlers if it
// has none.
void catch_faults();

// Leaves the kernel as `hcq_cuda_fail` does, with a text that says what is wrong.
[[noreturn]] void fail_with(const Block* block, uint32_t linear, uint32_t result, uint32_t line, uint64_t address,
                            const char* text);

// Raises `failed` and says if that was the first.
inline bool first_failure(Grid* grid) {
  uint32_t none = 0;
  // relaxed: the failure is read after all host threads of the grid have met
  return __atomic_compare_exchange_n(&grid->failed, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace cudacpu
