// The packets of a queue: what the command processor reads. Sizes in units of 64 bytes; a packet never crosses a
// segment.
#pragma once
#include <vector>

#include "core/base.hpp"

namespace hcq {

struct Program;
struct Signal;
struct BoundCommands;

constexpr uint32_t kUnit = 64;
constexpr uint32_t kMaxInlineArguments = 4096;  // bytes of kernargs that a packet carries
constexpr uint32_t kMostArguments =
    kMaxInlineArguments / 8 - 1;  // of a launch: each may take 8 of them, and their number does

enum class PacketType : uint16_t { link, exec, copy, signal, wait, timestamp, barrier, indirect };

enum PacketFlags : uint32_t {
  kEndOfSubmit = 1,   // a submit that failed is dropped up to here
  kWaitPrevious = 2,  // first wait for signal >= value - 1, whatever error it carries (own timeline)
  kCompletes = 4,     // set `signal` to `value` afterwards
  kExternalArgs = 8,  // exec: the kernargs are at `arguments`, not inline
  kTimed = 16,        // write start and end to `timing`
  kLabelled = 32,     // copy that sets no signal: `value` is its label in traces
  kRelative = 64,     // signal, wait: the value counts from the base of the indirect packet around it
  kWritten = 128,     // of what is in flight: the signal that it completes is set already (flights.cpp)
};

// `record` is the packet's number on its queue (of bound commands: among them), and above that the number of the
// user's line that asked for it (lines.hpp), 0 where nobody looked.
constexpr unsigned kLineShift = 40;
inline uint64_t record_number(uint64_t record) { return record & ((uint64_t{1} << kLineShift) - 1); }
inline uint64_t record_line(uint64_t record) { return record >> kLineShift; }

struct PacketHeader {
  PacketType type;
  uint16_t units;
  uint32_t flags;
  uint64_t record;  // numbers only; names sit in side tables
};

// Start and end of a command in ns on CLOCK_MONOTONIC. Held by the packet and by who asked for it.
struct Timing {
  std::atomic<uint32_t> refs{2};
  uint64_t start = 0, end = 0;
  void release() {
    // acq_rel: the last holder frees what the other one wrote
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

struct ExecPacket {
  PacketHeader header;
  Program* program;
  Signal* signal;
  uint64_t value;
  uint32_t groups[3];
  uint32_t items[3];
  // 64 bytes; then (kTimed | kExternalArgs) one unit of ExecExtra, then the inline kernargs
};
static_assert(sizeof(ExecPacket) == kUnit, "an exec packet's head is one unit");

struct alignas(64) ExecExtra {
  Timing* timing;
  const uint8_t* arguments;
};

struct CopyPacket {
  PacketHeader header;
  uint64_t destination, source, bytes;
  Signal* signal;
  uint64_t value;
  Timing* timing;
};
static_assert(sizeof(CopyPacket) == kUnit, "a copy packet is one unit");

struct alignas(64) SignalPacket {  // signal, wait, timestamp, barrier
  PacketHeader header;
  Signal* signal;
  uint64_t value;
};
static_assert(sizeof(SignalPacket) == kUnit, "a signal packet is one unit");

// One change of a bound queue's command, applied by the consumer when it reaches the submit that carries it.
struct Patch {
  uint32_t offset;  // units from the start of the bound commands
  uint32_t what;    // PatchKind
  union {
    struct {
      Signal* signal;
      uint64_t value;
    } signal;
    struct {
      uint32_t groups[3], items[3];
    } sizes;
    struct {
      uint64_t destination, source;
    } copy;
    uint64_t content;  // of a slot, or of bytes
  };
};
static_assert(sizeof(Patch) == 32, "two patches a unit");
enum PatchKind : uint32_t {
  kPatchSignal = 1,
  kPatchValue = 2,
  kPatchGroups = 4,
  kPatchItems = 8,
  kPatchDest = 16,
  kPatchSource = 32,
  kPatchSlot = 64,    // `offset` is the slot's number
  kPatchBytes = 128,  // `offset` is in bytes; how many times kPatchByte
  kPatchByte = 256
};

struct alignas(64) IndirectPacket {
  PacketHeader header;
  BoundCommands* commands;
  uint32_t patches;  // how many
  uint32_t reserved;
  Patch* patch_list;  // null: they follow inline; else malloc'ed, freed by the consumer
  Signal* signal;     // kWaitPrevious, kCompletes: around all of the commands
  uint64_t value;
  uint64_t base;  // what kRelative values count from
};
static_assert(sizeof(IndirectPacket) == kUnit, "an indirect packet's head is one unit");

// Where a slot's content stands in bound commands.
struct Place {
  uint32_t offset;  // bytes from their start
  uint32_t bytes;   // 8 or fewer
  uint64_t addend;  // the content, plus this
};

// Commands moved into memory of their own by bind() or a graph, who own them until retirement.
struct BoundCommands {
  std::atomic<uint32_t> refs{1};
  uint8_t* memory = nullptr;  // 64-byte aligned
  uint32_t units = 0;
  // Of a graph: what is patched at many places at once, by slot number. Not changed after the first submit.
  std::vector<std::vector<Place>> slots;
  // What an interface has made of them, and how that ends; under the step lock of the queue that they are submitted to.
  void* carried = nullptr;
  void (*drop)(void*) = nullptr;
  BoundCommands() = default;
  BoundCommands(const BoundCommands&) = delete;
  BoundCommands& operator=(const BoundCommands&) = delete;
  ~BoundCommands() {
    if (drop) drop(carried);
  }
};

// Applies a patch to bound commands: of a slot, or of one of their packets.
void apply_patch(BoundCommands* commands, const Patch& patch);
// Applies one patch to the packet that starts at `packet`.
void apply_patch(uint8_t* packet, const Patch& patch);

inline uint8_t* inline_arguments(ExecPacket* p) {
  return reinterpret_cast<uint8_t*>(p) + kUnit * ((p->header.flags & (kTimed | kExternalArgs)) ? 2 : 1);
}

}  // namespace hcq
