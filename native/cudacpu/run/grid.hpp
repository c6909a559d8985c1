// Running a grid: blocks over the host's cores, the threads of a block in turns. What a kernel's code must look like is
// in abi.hpp. What does not live here: API objects (launch.cpp makes one of these of a CUfunction).
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "run/abi.hpp"

namespace cudacpu {

enum class Kind : uint32_t { loop = 0, threads = 1, regions = 2 };

// A kernel's compiled code. Stays while its module is loaded.
struct Code {
  Kind kind = Kind::loop;
  void* entry = nullptr;
  uint32_t shared = 0;         // bytes, static; dynamic shared memory begins there
  uint32_t local = 0;          // bytes a thread
  uint32_t scratch_group = 0;  // regions: bytes of scratch memory a block ...
  uint32_t scratch_item = 0;   // ... and a thread
  bool checked = false;        // it tells of its accesses: see check.hpp
};

// Which line of the source each line of the PTX came from, where the PTX says so (-lineinfo).
struct Lines {
  struct From {
    uint32_t ptx, file, line;  // from this line of the PTX on
  };
  // Of some code: from which of its bytes on it was made of which line of the PTX; 0: of none.
  struct Made {
    uint32_t byte, ptx;
  };
  struct Code {
    uint64_t begin;          // its address
    std::vector<Made> made;  // in order
  };
  std::vector<std::string> files;
  std::vector<From> from;  // in order

  std::string of(uint32_t ptx) const;       // "file:line", or empty
  uint32_t at(uint64_t instruction) const;  // the line of the PTX that an instruction was made of; 0: not known
  void add(Code more);                      // any thread

 private:
  mutable std::mutex lock_;  // kernels are loaded while others run
  std::vector<Code> code_;
};

struct Launch {
  Code code;
  const char* name;                      // the kernel's
  const Lines* lines;                    // what the PTX was made of
  const std::vector<uint8_t>* accesses;  // see whose.hpp
  const uint8_t* params;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared;
  bool cooperative;
};

// How a grid ended. `result` is a CUresult, 0 if all went well; then `text` is empty.
struct Ending {
  uint32_t result = 0;
  std::string text;
};

// Runs a grid on this thread and, where it takes longer, on helpers. Returns when its last thread has ended or it
// failed. Any thread; must not be called with a lock of the library held, for it takes as long as the kernel takes.
Ending run_grid(const Launch& launch);

}  // namespace cudacpu
