// A loaded function and how it is run on the CPU. The command processor sees only this; loading lives in cpu/loader.
#pragma once
#include <string>
#include <vector>

#include "core/base.hpp"

namespace hcq {

enum class ParamKind : uint8_t { pointer, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, boolean };

struct Param {
  ParamKind kind;
  uint8_t size;      // bytes; natural alignment is the same number
  uint32_t offset;   // in the kernargs, from the start of the arguments
  std::string name;  // for messages; may be empty
};

enum class EntryKind : uint8_t {
  nothing,  // runs no code: the NULL device
  plain,    // C ABI function, called once a launch, arguments spread from the kernargs
  items,    // C ABI function, called once a work-item; has no barrier
  fibers,   // C ABI function, a fiber a work-item; has barriers
  group,    // void(const uint8_t* kernargs, const GroupContext*), called once a work-group, loops over items itself
};

// Reference counted; packets hold it raw, kept valid by retirement.
struct Program {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t id = 0;
  std::string name;
  EntryKind kind = EntryKind::nothing;
  void* entry = nullptr;
  bool typed = false;          // the library recorded parameters
  std::vector<Param> params;   // pointers first, then values
  uint32_t pointers = 0;       // how many of them are pointers
  uint32_t kernargs_size = 0;  // bytes, when typed
  // Duration of the last run, summed over threads, in ns; 0 before the first. Relaxed: a hint for who should run it.
  std::atomic<uint64_t> last_ns{0};
  void* code = nullptr;  // the loader's
};

// Runs work-groups first..last-1 (linear index, x fastest) of a launch on the calling thread. Never touches Python.
// plain: first = 0, last = 1. Any number of threads may run different groups of one launch at the same time.
void run_groups(const Program& program, const uint8_t* kernargs, const uint32_t groups[3], const uint32_t items[3],
                uint64_t first, uint64_t last);

// Loads function `name` from a library (bytes made by hcq.drivers.cpu.library.pack). Returns nullptr and sets `error`
// (a full message: damaged, foreign, or the function is missing and which ones are there).
Program* program_load(const uint8_t* library, size_t size, const std::string& name, std::string* error);
Program* program_nothing(const std::string& name);  // accepts any arguments, runs no code
void program_release(Program*);                     // drops a reference; freed once queued work has passed

}  // namespace hcq
