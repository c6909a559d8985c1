// The parts of the command processor: what is around a packet's work (passing.cpp), the work itself (running.cpp), and
// the queue (processor.cpp). Nobody else includes this. All of it under the queue's step lock.
#pragma once
#include "core/device.hpp"
#include "core/interface.hpp"
#include "core/queue_list.hpp"
#include "core/scheduler.hpp"

namespace hcq::processor {

constexpr uint64_t kShort = 100000;  // ns: what a waiting thread runs itself, whatever its deadline

// full: the next packet can't be given to the interface before something is over
enum class Did : uint8_t { next, blocked, pending, refused, again, full };

inline uint8_t* current(Queue* q) {
  if (q->nested) return q->nested->memory + static_cast<size_t>(q->nested_offset) * kUnit;
  for (;;) {
    uint8_t* p = q->read_segment->data + static_cast<size_t>(q->read_offset) * kUnit;
    auto* h = reinterpret_cast<PacketHeader*>(p);
    if (h->type != PacketType::link) return p;
    Segment* done = q->read_segment;
    q->read_segment = reinterpret_cast<Segment*>(h->record);
    q->read_offset = 0;
    queue_give_segment(q, done);
  }
}

inline uint64_t failure(Queue* q) {
  uint64_t lost = q->device->fault.load(std::memory_order_acquire);
  return lost ? lost : q->dropping;
}

// Whether commands that an interface has are not over.
inline bool in_flight(const Queue* q) { return q->flights && !flights_none(q); }

// The value of a signal or wait packet.
inline uint64_t value_of(const Queue* q, const SignalPacket* p) {
  return p->value + (p->header.flags & kRelative ? q->base : 0);
}

// Whether the device's own timeline is at `value`, or will be when a command begins that is given now.
inline bool comes(Queue* q, Signal* s, uint64_t value) {
  if (in_flight(q) && flights_promise(q, s, value)) return true;  // first: the device writes where the value is
  if (s->memory->value.load(std::memory_order_acquire) >= value) return true;
  return q->flights && flights_follow(q, s, value);
}

// passing.cpp

// Past the current packet. The store to `done` comes last: what it covers may be released by whoever sees it.
void advance(Queue* q, const PacketHeader* h);
// Whether an injected failure fires for this packet; its device is lost then.
bool injected_here(Queue* q, const uint8_t* packet, InjectWhat what, const char* name);
void start_indirect(Queue* q, IndirectPacket* p);
// Drops the current packet (or enters the nested ones, to drop them).
void drop(Queue* q, uint8_t* packet, uint64_t error);
// What follows the work of an exec or copy packet: times, the signal, the next packet.
void complete(Queue* q, uint8_t* packet, uint64_t start, uint64_t end);
// Blocks the queue on (signal, value) unless that is reached by now.
Did wait_for(Queue* q, Signal* s, uint64_t value, bool own);
Did given(Gave gave, Queue* q, const PacketHeader* h);

// running.cpp

// `helper`: for a thread that waits, which has until the deadline.
Did run_exec(Queue* q, uint8_t* packet, bool helper, uint64_t deadline);
Did run_copy_packet(Queue* q, uint8_t* packet, bool helper);
// Short execs of bound commands, one after the other: what run_exec does for each of them, with its looks at the world
// taken once for some microseconds of work. The last command is left for run_packet, which ends the submit.
void run_chain(Queue* q);
// A run of bound commands that an interface takes as one; `again`: there is none here.
Did run_batch(Queue* q, bool helper);
// What a job of a program's groups took, once it is over.
void note_duration(const Job* job);
// The end of a copy from or to a file. One that failed drops the rest of its submit; the device is well.
void end_file_copy(Queue* q, uint8_t* packet, uint64_t error);

}  // namespace hcq::processor
