// A loaded function and how it is run on the CPU. The command processor sees only this; loading lives in cpu/loader.
#pragma once
#include <string>
#include <vector>

#include "core/base.hpp"

namespace hcq {

// bits8 to bits64 are integers whose sign nothing recorded, as those of LLVM IR: they take whole numbers of either.
// Those behind them are in no library of the CPU devices. A structure is bytes, as many as its parameter has.
enum class ParamKind : uint8_t {
  pointer,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  boolean,
  bits8,
  bits16,
  bits32,
  bits64,
  f8e4m3fn,
  f8e5m2,
  structure
};

// What a launch does to the memory of a pointer; the numbers are those of the library.
enum class Access : uint8_t { unknown, read, write, both };

struct Param {
  ParamKind kind;
  Access access;
  uint16_t size;     // bytes; natural alignment is the same number, of structures 8
  uint32_t offset;   // in the kernargs, from the start of the arguments
  std::string name;  // for messages; may be empty
};

// Up to `packed` the numbers are those that libraries hold (hcq.drivers.cpu.library).
enum class EntryKind : uint8_t {
  nothing,    // runs no code: the NULL device
  plain,      // C ABI function, called once a launch, arguments spread from the kernargs
  items,      // C ABI function, called once a work-item; has no barrier
  fibers,     // C ABI function, a fiber a work-item; has barriers
  group,      // void(const uint8_t* kernargs, const GroupContext*), called once a work-group, loops over items itself
  packed,     // void(const uint8_t* kernargs), called once a launch; a plain function that reads its own arguments
  elsewhere,  // in no library: carried out by an interface, which knows what `entry` is
};

// What a `group` entry is given beside its arguments. Generated code reads it by these offsets: 0, 12, 24, 40.
struct GroupContext {
  uint32_t group_id[3];
  uint32_t num_groups[3];
  uint32_t local_size[3];  // each at least 1
  uint32_t reserved;
  // Memory of this group alone, uninitialised, 64-byte aligned, at least scratch_bytes() long: local arrays, and what
  // items keep across a barrier. One block a thread, used by one group after the other.
  uint8_t* scratch;
};
static_assert(sizeof(GroupContext) == 48 && offsetof(GroupContext, scratch) == 40, "generated code knows the layout");

// Bytes of local memory that a work-group may have (DeviceLimits.local_memory_bytes); programs with more aren't loaded.
constexpr uint32_t kMaxLocal = 1 << 20;

// now: others had the GIL meanwhile. failed: an exception is set.
enum class Ready : uint8_t { before, now, failed };

// Reference counted; packets hold it raw, kept valid by retirement.
struct Program {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t id = 0;
  std::string name;
  EntryKind kind = EntryKind::nothing;
  void* entry = nullptr;
  bool typed = false;         // the library recorded parameters
  std::vector<Param> params;  // pointers first, then values
  uint32_t pointers = 0;      // how many of them are pointers
  // Of a program that is not typed, where its parameters' sizes are known: all of them in the source's order, in which
  // they are given, their offsets those of slots. Those of 64 bits may be pointers.
  std::vector<Param> in_order;
  uint32_t kernargs_size = 0;  // bytes, when typed
  // Scratch that a `group` entry needs: bytes a group (a multiple of 64), and bytes a work-item on top of it.
  uint32_t scratch_group = 0;
  uint32_t scratch_item = 0;
  uint64_t scratch_bytes(uint64_t items_in_group) const {
    return scratch_group + ((items_in_group + 63) & ~uint64_t{63}) * scratch_item;
  }
  // What runs write, in a line of its own: launching threads read the others.
  // The last run: its duration, summed over threads, in ns, 0 before the first; and its work-items. Relaxed, and not of
  // one run where two threads write: hints for who should run it.
  alignas(64) std::atomic<uint64_t> last_ns{0}, last_items{0};
  // The session of records (record.hpp) that has its name. Relaxed: noted twice, at worst.
  std::atomic<uint64_t> recorded{0};
  alignas(64) void* code = nullptr;  // the loader's
  // Of `elsewhere`: sizes of groups that it takes (0: any), the last one given, the device whose buffers alone it
  // takes, whether it takes the memory at an address for one of its pointers (null: any; false with the reason), and
  // how it ends.
  uint64_t most_items = 0;
  uint32_t wanted_items[3] = {};
  std::atomic<uint64_t> given_items{0};
  std::string home;
  bool (*takes)(const Program&, size_t pointer, uint64_t address, std::string* why) = nullptr;
  void (*end)(Program*) = nullptr;
  // Of one whose groups are all to be there at a time: how many of `items` can be. Null: any number will do. With the
  // GIL held.
  uint64_t (*most_groups)(const Program&, const uint32_t items[3]) = nullptr;
  // May be null. With the GIL, before a launch is queued: makes what groups of that size need, once.
  Ready (*ready)(const Program*, const uint32_t items[3]) = nullptr;

  // How long a launch of so many work-items may take, in ns, by the last run; 0 before the first. A program runs with
  // many sizes in turn where its results are worked on by itself, as in a sum of sums.
  uint64_t estimate(uint64_t items) const {
    uint64_t ns = last_ns.load(std::memory_order_relaxed), known = last_items.load(std::memory_order_relaxed);
    if (items == known || ns == 0 || known == 0) return ns;
    double scaled = static_cast<double>(ns) / static_cast<double>(known) * static_cast<double>(items);
    return scaled < 1e18 ? static_cast<uint64_t>(scaled) + 1 : UINT64_C(1000000000000000000);
  }
  void ran(uint64_t items, uint64_t ns) {
    last_items.store(items, std::memory_order_relaxed);
    last_ns.store(ns, std::memory_order_relaxed);
  }
};

// Work-items of a launch of so many groups.
inline uint64_t work_items(uint64_t groups, const uint32_t items[3]) { return groups * items[0] * items[1] * items[2]; }

// What is recorded of value `position` of a launch that has so many buffers; null: nothing.
inline const Param* value_param(const Program& program, size_t buffers, size_t position) {
  if (program.typed) return &program.params[program.pointers + position];
  return buffers + position < program.in_order.size() ? &program.in_order[buffers + position] : nullptr;
}

// Kernargs of an untyped program: a u64 count, then as many 8-byte slots, each argument in one (integers extended), or
// in as many as a structure needs.
//
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
