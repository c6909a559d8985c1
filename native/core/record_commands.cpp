// What the command processor records of the packets it runs. Under the queue's step lock, so a queue has one writer.
#include "core/device.hpp"
#include "core/program.hpp"
#include "core/record.hpp"

namespace hcq {

uint64_t submit_record(const Queue* q, const PacketHeader* h) {
  if (!q->nested) return h->record;
  const uint8_t* outer = q->read_segment->data + static_cast<size_t>(q->read_offset) * kUnit;
  uint64_t record = reinterpret_cast<const PacketHeader*>(outer)->record, line = record_line(h->record);
  return line ? record_number(record) | line << kLineShift : record;
}

namespace {
// The queue's track in this session.
uint32_t track_of(Queue* q, uint64_t session) {
  RecordSlot& slot = q->record_slot;
  if (slot.session != session) {
    Device* d = q->device;
    TrackKind kind = q == d->compute.load(std::memory_order_relaxed) ? TrackKind::compute
                     : q == d->copy.load(std::memory_order_relaxed)  ? TrackKind::copy
                                                                     : TrackKind::stream;
    slot.track = record_track(session, RecordTrack{kind, d->name, q->name, q->id});
    slot.session = session;
  }
  return slot.track;
}
}  // namespace

void record_command(Queue* q, const uint8_t* packet, uint64_t record, uint64_t start, uint64_t end) {
  uint64_t session = recording();
  uint32_t track = track_of(q, session);
  Record* r = record_next(q->record_slot, session);
  if (!r) return;
  auto* h = reinterpret_cast<const PacketHeader*>(packet);
  uint8_t flags = (h->flags & kWaitPrevious ? kRecordWaits : 0) | (h->flags & kCompletes ? kRecordCompletes : 0);
  r->start = start;
  r->end = end;
  r->submit = record;
  r->track = track;
  r->reserved = 0;
  if (h->type == PacketType::exec) {
    auto* p = reinterpret_cast<const ExecPacket*>(packet);
    // The program lives: its packet isn't passed yet. relaxed: who misses the store notes the name once more
    if (__builtin_expect(p->program->recorded.load(std::memory_order_relaxed) != session, 0)) {
      record_name(session, p->program->id, p->program->name);
      p->program->recorded.store(session, std::memory_order_relaxed);
    }
    uint64_t groups = static_cast<uint64_t>(p->groups[0]) * p->groups[1] * p->groups[2];
    r->kind = RecordKind::exec;
    r->signal = flags ? p->signal->id : 0;
    r->value = flags ? p->value : 0;
    r->what = p->program->id;
    r->extra = groups << 16 | (static_cast<uint64_t>(p->items[0]) * p->items[1] * p->items[2] & 0xffff);
  } else {
    auto* p = reinterpret_cast<const CopyPacket*>(packet);
    r->kind = RecordKind::copy;
    r->signal = flags ? p->signal->id : p->destination;
    r->value = flags ? p->value : p->source;
    r->what = p->bytes;
    r->extra = h->flags & kLabelled ? p->value : 0;
    if (h->flags & kLabelled) flags |= kRecordLabelled;
  }
  r->flags = flags;
  record_publish(q->record_slot);
}

void record_order(Queue* q, RecordKind kind, const Signal* signal, uint64_t value) {
  uint64_t session = recording();
  q->record_clock = 0;
  Record r{};
  r.start = r.end = now_ns();
  r.signal = signal->id;
  r.value = value;
  r.track = track_of(q, session);
  r.kind = kind;
  record_write(q->record_slot, session, r);
}

}  // namespace hcq
