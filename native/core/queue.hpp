// A queue: segments of packets, who produces, who consumes. Stepping lives in processor.cpp, threads in scheduler.cpp.
#pragma once
#include <string>

#include "core/packet.hpp"
#include "core/record.hpp"
#include "core/signal.hpp"

namespace hcq {

struct Device;
struct Flights;
struct Job;

enum class QueueKind : uint8_t { compute, copy };
enum QueueState : uint32_t { kIdle, kReady, kRunning };

constexpr uint32_t kSegmentUnits = 1024;  // 64 KiB
struct alignas(64) Segment {
  Segment* next;
  uint8_t padding[56];
  uint8_t data[(kSegmentUnits - 1) * kUnit];
};
static_assert(sizeof(Segment) == kSegmentUnits * kUnit, "a segment is 64 KiB");
constexpr uint32_t kSegmentCapacity = kSegmentUnits - 2;  // one unit is kept for the link packet

struct Queue {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t id = 0;
  Device* device = nullptr;
  QueueKind kind = QueueKind::compute;
  std::string name;

  // Producers, under `produce`.
  alignas(64) SpinLock produce;
  Segment* write_segment = nullptr;
  uint32_t write_offset = 0;    // units within it
  uint64_t write_position = 0;  // units written, ever
  uint64_t records = 0;         // record ids given out
  SpinLock segments_lock;       // the free list: the consumer gives, producers take
  Segment* free_segments = nullptr;
  uint32_t free_count = 0, segment_count = 0;

  // Published: release after the packets are written, acquire by the consumer.
  alignas(64) std::atomic<uint64_t> tail{0};
  std::atomic<uint32_t> state{kIdle};

  // Consumer, under `step_lock` (try only).
  alignas(64) SpinLock step_lock;
  Relaxed<Segment*> read_segment;
  Relaxed<uint32_t> read_offset;
  Relaxed<uint64_t> read_position;
  Relaxed<BoundCommands*> nested;  // inside an indirect packet
  Relaxed<uint32_t> nested_offset;
  Relaxed<uint64_t> base;            // what kRelative values count from there
  uint64_t dropping = 0;             // error that drops packets up to the end of this submit
  std::atomic<bool> blocked{false};  // an entry of the blocked list stands for this queue
  uint64_t job_start = 0;
  uint32_t execs = 0;  // short kernels run here; every sixteenth is timed
  Job* job = nullptr;
  Flights* flights = nullptr;  // where an interface carries out the commands (interface.hpp), from the start
  // The exec or copy packet that runs now, null between them. While it stays, so do the fields above (walk.cpp).
  std::atomic<const uint8_t*> running{nullptr};
  std::atomic<uint64_t> completed{0};      // execs and copies, those of bound commands too
  std::atomic<uint64_t> hung{UINT64_MAX};  // `completed` when the command that runs had lost the device by its length
  std::atomic<uint32_t> helped{0};         // steps taken by waiting threads
  uint32_t helped_before = 0;              // the same, when a pool thread last took the queue
  // The last of `completed`, in numbers: its program may be gone by the time that somebody asks. 0: a copy.
  Relaxed<uint64_t> last_program, last_record;
  Relaxed<uint64_t> last_signal, last_value;  // what it set; 0: nothing

  // Units completed, as the value of a signal, so that one wait serves for both. Woken when the queue becomes empty,
  // blocked or pending, not at every packet.
  alignas(64) SignalMemory done{};

  // The consumer's, while somebody profiles; last, so that the rest lies as it did.
  RecordSlot record_slot;  // where its records go while somebody profiles
  // The time, where the command before has just ended, else 0; and what that command set, which the next may wait for.
  uint64_t record_clock = 0, record_value = 0;
  const Signal* record_signal = nullptr;

  bool has_work() const { return tail.load(std::memory_order_acquire) != done.value.load(std::memory_order_acquire); }
};

Queue* queue_create(Device* device, QueueKind kind, std::string name);
void queue_retain(Queue*);
// For a pointer that nobody keeps valid, a signal's `setter` say, or null: false when that queue is gone (or
// inherited). Records are recycled, so it may be another queue by now, which is harmless to step.
bool queue_retain_live(Queue*);
void queue_release(Queue*);
void queue_close(Queue*);  // after it is empty: leaves the list of queues; positions count as passed

// Under `produce`. Whether `units` (in packets of at most `largest` units) fit under the limit; when they do, the
// memory for them is there.
enum class Room : uint8_t { yes, full, never, no_memory };
Room queue_room(Queue*, uint64_t units, uint32_t largest);
// Under `produce`, after queue_room: memory for one packet of `units`, contiguous, header not set.
uint8_t* queue_write(Queue*, uint32_t units);
// Under `produce`: makes everything written visible to the consumer. Follow with doorbell() once unlocked.
inline void queue_publish(Queue* q) { q->tail.store(q->write_position, std::memory_order_release); }
uint64_t queue_limit_bytes();
void queue_set_limit(uint64_t bytes);  // at least two segments: one that is being read and one to go on with

// full: more can't be given to the interface before something that it has is over
enum class StepResult : uint8_t { empty, blocked, pending, busy, refused, out_of_time, full };
// Runs packets of q on this thread. helper: a thread that waits for something; it refuses commands not known to be
// short, and stops at `deadline` (ns). Pool threads pass UINT64_MAX, and look again after `empty`: something may have
// come while they ran the last of few.
StepResult step(Queue* q, bool helper, uint64_t deadline);
// The thread that finished a job's last range: completes the packet and lets the queue go on. Owns the step lock.
void finish_job(Queue* q);
// After giving up the step lock: what came meanwhile is not left behind.
void leave(Queue* q);

}  // namespace hcq
