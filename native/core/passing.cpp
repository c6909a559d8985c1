// What is around a packet's work: going on to the next, dropping, waiting, and what follows (processor.hpp).
#include <cstdlib>

#include "core/processor.hpp"
#include "core/program.hpp"

namespace hcq {

namespace processor {

namespace {
// Marks what a dropped packet was to signal as failed. A device that is well still advances its own timeline.
void drop_signal(Queue* q, Signal* s, uint64_t value, uint64_t error, bool own) {
  Device* d = q->device;
  bool lost = d->fault.load(std::memory_order_acquire) != 0;
  signal_fail(*s->memory, error, value, lost ? UINT64_MAX : value);
  if (!lost && (own || s == d->timeline.signal)) signal_set(*s->memory, value);
}
}  // namespace

void advance(Queue* q, const PacketHeader* h) {
  if (q->nested) {
    q->nested_offset += h->units;
    if (q->nested_offset < q->nested->units) return;
    q->nested = nullptr;
    h = reinterpret_cast<PacketHeader*>(current(q));
    if (h->flags & kCompletes) {
      auto* p = reinterpret_cast<const IndirectPacket*>(h);
      if (uint64_t error = failure(q)) {
        drop_signal(q, p->signal, p->value, error, true);
      } else if (in_flight(q)) {
        flights_signal(q, p->signal, p->value, true);
      } else {
        if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::signal, p->signal, p->value);
        signal_set(*p->signal->memory, p->value);
      }
    }
  }
  if (h->flags & kEndOfSubmit) q->dropping = 0;
  q->read_offset += h->units;
  q->read_position += h->units;
  if (in_flight(q)) return flights_cover(q);
  q->done.value.store(q->read_position, std::memory_order_release);
}

bool injected_here(Queue* q, const uint8_t* packet, InjectWhat what, const char* name) {
  q->running.store(packet, std::memory_order_release);  // it may stall
  uint64_t error = injected(q->device, what, name);
  if (error) device_lose(q->device, error, q);
  q->running.store(nullptr, std::memory_order_release);
  return error != 0;
}

void start_indirect(Queue* q, IndirectPacket* p) {
  const Patch* list = p->patch_list ? p->patch_list : reinterpret_cast<const Patch*>(p + 1);
  for (uint32_t i = 0; i < p->patches; ++i) apply_patch(p->commands, list[i]);
  std::free(p->patch_list);
  // relaxed: a report that looks at the packet meanwhile does not look at these
  __atomic_store_n(&p->patch_list, nullptr, __ATOMIC_RELAXED);
  __atomic_store_n(&p->patches, 0, __ATOMIC_RELAXED);
  q->nested_offset = 0;
  q->nested = p->commands;
  q->base = p->base;
}

void drop(Queue* q, uint8_t* packet, uint64_t error) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  switch (h->type) {
    case PacketType::indirect: {
      auto* p = reinterpret_cast<IndirectPacket*>(packet);
      start_indirect(q, p);
      return;
    }
    case PacketType::signal: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      drop_signal(q, p->signal, value_of(q, p), error, false);
      break;
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<ExecPacket*>(packet);
      if (h->flags & kTimed) reinterpret_cast<ExecExtra*>(packet + kUnit)->timing->release();
      if (h->flags & kCompletes) drop_signal(q, p->signal, p->value, error, true);
      break;
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<CopyPacket*>(packet);
      if (h->flags & kTimed) p->timing->release();
      if (h->flags & kCompletes) drop_signal(q, p->signal, p->value, error, true);
      break;
    }
    default:
      break;
  }
  advance(q, h);
}

void complete(Queue* q, uint8_t* packet, uint64_t start, uint64_t end) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  command_ended(q, packet, submit_record(q, h), start, end);
  advance(q, h);
}

Did wait_for(Queue* q, Signal* s, uint64_t value, bool own) {
  q->record_clock = 0;
  block(q, s, value);
  // The entry is in the list now: either the setter sees it, or we see the value.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool ready = own ? s->memory->value.load(std::memory_order_acquire) >= value
                   : signal_reached(*s->memory, value) != Reached::no;
  if (!ready && !q->device->fault.load(std::memory_order_acquire)) return Did::blocked;
  unblock(q);
  return Did::again;
}

Did given(Gave gave, Queue* q, const PacketHeader* h) {
  if (gave == Gave::full) return Did::full;
  if (gave == Gave::lost) return Did::again;
  advance(q, h);
  return Did::next;
}

}  // namespace processor

void command_ended(Queue* q, uint8_t* packet, uint64_t record, uint64_t start, uint64_t end) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  Signal* signal;
  uint64_t value;
  Timing* timing = nullptr;
  if (h->type == PacketType::exec) {
    auto* p = reinterpret_cast<ExecPacket*>(packet);
    signal = p->signal;
    value = p->value;
    if (h->flags & kTimed) timing = reinterpret_cast<ExecExtra*>(packet + kUnit)->timing;
    q->last_program = p->program->id;
  } else {
    auto* p = reinterpret_cast<CopyPacket*>(packet);
    signal = p->signal;
    value = p->value;
    if (h->flags & kTimed) timing = p->timing;
    q->last_program = 0;
  }
  q->last_record = record;
  q->last_signal = h->flags & kCompletes ? signal->id : 0;
  q->last_value = value;
  // release: who sees these sees the four above. One writer; `completed` is read to see that a queue moves
  q->completed.store(q->completed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  q->running.store(nullptr, std::memory_order_release);
  if (timing) {
    timing->start = start;
    timing->end = end;
    timing->release();
  }
  if (start && __builtin_expect(recording() != 0, 0)) {
    const RecordChunk* chunk = q->record_slot.chunk;
    record_command(q, packet, record, start, end);
    // The next command starts now, unless memory was made or somebody has to be woken: one look at the clock for both.
    if (chunk == q->record_slot.chunk && !blocked_entries() &&
        !(h->flags & kCompletes && signal->memory->sleepers.load(std::memory_order_relaxed)))
      q->record_clock = end;
    q->record_signal = h->flags & kCompletes ? signal : nullptr;
    q->record_value = value;
  }
  if (!(h->flags & kCompletes)) return;
  if (__builtin_expect((h->flags & kWritten) != 0, 0))
    signal_wake(*signal->memory);
  else
    signal_set(*signal->memory, value);
}

}  // namespace hcq
