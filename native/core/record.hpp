// Records of what ran and what the host did, while somebody profiles: numbers, in chunks that their writers own
// (docs/design/traces.md). Who writes commands is the processor (record_commands.cpp), who writes what Python threads
// do is record_host.cpp. Making traces of records is Python's (hcq.profiling).
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base.hpp"

namespace hcq {

struct Queue;
struct Signal;

// hcq.profiling.records knows these numbers and the layout.
enum class RecordKind : uint8_t {
  exec = 1,   // a launch that ran
  copy,       // a copy that ran
  signal,     // a signal command
  wait,       // a wait command that was passed
  host_copy,  // a copy by the thread that asked for it
  submit,     // host: a queue was submitted
  launches,   // host: launches one after the other
  host_wait,  // host: a thread waited
  compile,    // host: a compile, or a look into the cache
  memory,     // host: bytes that are live on a device
};
enum RecordFlags : uint8_t {
  kRecordWaits = 1,      // exec, copy: first waited for signal >= value - 1
  kRecordCompletes = 2,  // exec, copy: set signal to value afterwards
  kRecordLabelled = 4,   // `extra` is a label
  kRecordIn = 8,         // host_copy: from the host; else to it
};

struct Record {
  uint64_t start, end;  // ns on CLOCK_MONOTONIC
  uint64_t submit;      // `record` of the packet, or of the submit, with its line; 0: none
  uint64_t signal;      // id; copies that set none: the destination; memory: where that lay that went, or 0
  uint64_t value;       // of the signal; copies that set none: the source; memory: the end of what went
  uint64_t what;        // exec: program id; copies, memory: bytes; submit, launches: queue id
  uint64_t extra;       // exec: groups << 16 | items a group; label; memory, submit, launches: how many
  uint32_t track;       // where it happened (RecordTrack)
  RecordKind kind;
  uint8_t flags;
  uint16_t reserved;
};
static_assert(sizeof(Record) == 64, "a record is 64 bytes");

enum class TrackKind : uint8_t { compute, copy, stream, thread, device };
struct RecordTrack {
  TrackKind kind;
  std::string device, name;
  uint64_t id;  // queues: Queue::id; threads: the system's number
};

// The session that records, 0: nobody does. Relaxed where it is looked at: a writer that comes late writes into memory
// that is still there, and is left out.
extern std::atomic<uint64_t> g_recording;
inline uint64_t recording() { return g_recording.load(std::memory_order_relaxed); }

// Where one writer writes: a queue (under its step lock) or a thread (under the GIL).
struct RecordMemory;  // what several of them lie in
struct RecordChunk {
  std::atomic<uint32_t> refs{2};   // its writer and the store
  std::atomic<uint32_t> count{0};  // release by the writer, acquire by readers: records below it are whole
  uint64_t session;
  uint64_t bytes;  // of the whole
  RecordMemory* memory;
  uint32_t capacity;  // records
  uint8_t padding[28];
  Record records[1];  // and as many more as there is room for
};
static_assert(offsetof(RecordChunk, records) == 64, "records lie in cache lines of their own");
struct RecordSlot {
  RecordChunk* chunk = nullptr;
  uint64_t session = 0;  // that `track` is of
  uint32_t track = 0;
};
RecordChunk* record_chunk_next(RecordSlot& slot, uint64_t session);  // null: the store is full, or the session over
// Where the next record goes, to be filled and then published; null as above.
inline Record* record_next(RecordSlot& slot, uint64_t session) {
  RecordChunk* chunk = slot.chunk;
  uint32_t count = chunk ? chunk->count.load(std::memory_order_relaxed) : 0;
  if (__builtin_expect(!chunk || chunk->session != session || count == chunk->capacity, 0)) {
    if (!(chunk = record_chunk_next(slot, session))) return nullptr;
    count = 0;
  }
  return &chunk->records[count];
}
inline void record_publish(RecordSlot& slot) {
  std::atomic<uint32_t>& count = slot.chunk->count;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}
inline void record_write(RecordSlot& slot, uint64_t session, const Record& record) {
  if (Record* to = record_next(slot, session)) {
    *to = record;
    record_publish(slot);
  }
}
void record_slot_drop(RecordSlot& slot);  // the writer ends

// Side tables. Any thread.
uint32_t record_track(uint64_t session, RecordTrack track);
void record_name(uint64_t session, uint64_t program, const std::string& name);
uint64_t record_label(const std::string& text);  // the same number for the same text, as long as the process lives

// The record of a command as its submit's: that of the indirect packet where it is a bound one, with its own line
// where that is known. The consumer's.
struct PacketHeader;
uint64_t submit_record(const Queue* q, const PacketHeader* h);

// The processor's, under the step lock, before the signal is set. `packet` is an exec or copy.
void record_command(Queue* q, const uint8_t* packet, uint64_t record, uint64_t start, uint64_t end);
// A signal about to be set, or a wait just passed, by a command or by the submit around several.
void record_order(Queue* q, RecordKind kind, const Signal* signal, uint64_t value);

// The calling thread's, with the GIL.
void record_host(uint64_t session, Record record);  // its track: 0 stands for the thread
void record_host_copy(uint64_t session, const std::string& device, bool in, uint64_t bytes, uint64_t start);
bool record_launch_seen(uint64_t session, const Queue* q);  // with a look at the clock (record_launch.hpp)
void record_launched(uint64_t submit);                      // the record id it got
struct DeviceTrack {                                        // of one device, kept where it is needed often
  uint64_t session = 0;
  uint32_t track = 0;
};
// What is live there now; `first` and `last`: of a buffer in memory with addresses that has just gone, whose copies are
// named by them.
void record_memory(uint64_t session, DeviceTrack& at, const char* device, uint64_t bytes, uint64_t count,
                   uint64_t first = 0, uint64_t last = 0);

// A stretch of the calling thread's, from its making to its end; nothing when nobody records. With the GIL.
class HostSpan {
 public:
  explicit HostSpan(RecordKind kind, uint64_t signal = 0, uint64_t value = 0)
      : session_(recording()), kind_(kind), signal_(signal), value_(value) {
    if (__builtin_expect(session_ != 0, 0)) start_ = now_ns();
  }
  HostSpan(const HostSpan&) = delete;
  HostSpan& operator=(const HostSpan&) = delete;
  ~HostSpan() {
    if (__builtin_expect(session_ != 0, 0)) finish();
  }

 private:
  void finish();
  uint64_t session_, start_ = 0;
  RecordKind kind_;
  uint64_t signal_, value_;
};

// Sessions, with the GIL. Profiles nest and overlap: recording ends with the last of them.
void record_begin(uint64_t most_records);
void record_end();
struct RecordSnapshot {
  std::vector<Record> records;  // each writer's in order
  std::vector<RecordTrack> tracks;
  std::unordered_map<uint64_t, std::string> programs;
  std::vector<std::string> labels;
  uint64_t dropped = 0;  // did not fit any more
};
// What ended at `since` (ns) or later.
RecordSnapshot record_snapshot(uint64_t since);

void records_after_fork();
}  // namespace hcq
