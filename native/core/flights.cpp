// What is in flight on a queue whose commands an interface carries out (interface.hpp).
#include "core/flights.hpp"

#include <algorithm>
#include <cstring>

#include "core/device.hpp"
#include "core/program.hpp"
#include "core/scheduler.hpp"

namespace hcq {

namespace {
constexpr uint64_t kPatience = 3000;  // ns that a launching thread waits for the step lock
constexpr uint64_t kGive = 1000000;   // ns that a launching thread gives commands at most
}  // namespace

Flight& flight_make(Queue* q, const uint8_t* packet, uint32_t units) {
  Flights& f = *q->flights;
  Flight& x = f.at(f.size());
  std::memcpy(x.head, packet, units * kUnit);
  x.command = Command{};
  x.command.timed = x.header()->flags & kTimed || q->flights->begins || recording();
  x.record = submit_record(q, x.header());
  x.position = q->read_position;
  x.given = 0;
  x.begins = nullptr;
  x.followed = nullptr;
  x.count = 1;
  x.by_host = x.command.timed;
  return x;
}

Signal* flight_sets(const Flight& x, uint64_t* value) {
  switch (x.header()->type) {
    case PacketType::signal: {
      auto* p = reinterpret_cast<const SignalPacket*>(x.head);
      *value = p->value;
      return p->signal;
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<const ExecPacket*>(x.head);
      *value = p->value;
      return x.header()->flags & kCompletes ? p->signal : nullptr;
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<const CopyPacket*>(x.head);
      *value = p->value;
      return x.header()->flags & kCompletes ? p->signal : nullptr;
    }
    default:
      return nullptr;
  }
}

bool flight_promises(const Flight& x, const Signal* signal, uint64_t value) {
  uint64_t promised = 0;
  if (flight_sets(x, &promised) != signal || promised < value) return false;
  // The lane sets it a moment before its word says so. Whoever saw that may have set it back, and wait for the next
  // time: the host here, or other processes, which nobody counts.
  return !x.command.written || (signal->pooled && x.host_sets == signal->host_sets.load(std::memory_order_relaxed));
}

bool flights_open(Queue* q, std::string* error) {
  Flights& f = *q->flights;
  if (!f.lane) f.lane = interface_of(q).open(q->device->context, error);
  return f.lane != nullptr;
}

void queue_release_later(Queue* q) {
  if (q->refs.load(std::memory_order_acquire) == 1) doorbell(q);
  queue_release(q);
}

std::string name_of(const Flight& x) {
  std::string name =
      x.header()->type == PacketType::exec ? reinterpret_cast<const ExecPacket*>(x.head)->program->name : "copy";
  return x.count == 1 ? name : "one of " + std::to_string(x.count) + " commands from " + name + " on";
}

namespace {
Timing* timing_of(const Flight& x) {
  if (!(x.header()->flags & kTimed)) return nullptr;
  return x.header()->type == PacketType::exec ? reinterpret_cast<const ExecExtra*>(x.head + kUnit)->timing
                                              : reinterpret_cast<const CopyPacket*>(x.head)->timing;
}

// Whether what a flight follows is over for the host too, where that sets signals: in the order that queues wait for.
bool reached(const Flight& x) {
  if (!x.by_host) return true;
  auto ended = [&] { return x.followed->flights->landed.load(std::memory_order_acquire) > x.follows; };
  if (ended()) return true;
  flights_look(x.followed);
  return ended();
}

// A signal that the lane of a device was to set, which is lost: it may still do so, until its context is gone. So the
// memory is nobody else's any more.
void fail_set(Queue* q, Flight& x) {
  uint64_t value, error = q->device->fault.load(std::memory_order_acquire);
  Signal* s = flight_sets(x, &value);
  if (!s) return;
  if (x.command.written) s->refs.fetch_add(1, std::memory_order_relaxed);  // packets that name it keep one as well
  signal_fail(*s->memory, error, value, UINT64_MAX);
}

// When a flight ran. A queue's commands come one after the other, whatever the rounding of the interface's clock.
void times_of(Queue* q, const Flight& x, uint64_t* start, uint64_t* end) {
  Flights& f = *q->flights;
  interface_of(q).times(x.command, x.given, start, end);
  *start = std::max(*start, f.last);
  if (*end <= *start) *end = *start + (is_command(x) ? 1 : 0);
  f.last = *end;
}

// The end of the oldest flight. What ended well is what it is, on a lost device too.
void land(Queue* q, bool failed) {
  Flights& f = *q->flights;
  Flight& x = f.at(0);
  uint64_t start = 0, end = 0;
  bool stamp = f.size() > 1 && f.at(1).header()->type == PacketType::timestamp && !f.at(1).command.event;
  if (is_command(x) && !failed) {
    if (x.command.event && (x.begins || stamp || x.header()->flags & kTimed || recording()))
      times_of(q, x, &start, &end);
    else if (!x.command.event)
      start = end = now_ns();  // there was nothing to do
    if (x.begins) x.begins->memory->timestamp.store(start, std::memory_order_release);
    f.ended = end;
  }
  if (x.command.event && !failed && x.header()->type == PacketType::timestamp) times_of(q, x, &start, &f.ended);
  if (x.command.event) interface_of(q).drop(x.command);
  if (is_command(x)) {
    if (failed) {
      if (Timing* timing = timing_of(x)) timing->release();
      fail_set(q, x);
      q->completed.store(q->completed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      q->running.store(nullptr, std::memory_order_release);
    } else {
      // The others of a run count; the first is what is told of it.
      if (x.count > 1)
        q->completed.store(q->completed.load(std::memory_order_relaxed) + x.count - 1, std::memory_order_release);
      command_ended(q, x.head, x.record, start, end);
    }
  } else if (failed) {
    fail_set(q, x);
  } else {
    auto* p = reinterpret_cast<SignalPacket*>(x.head);
    if (x.header()->type == PacketType::timestamp) {
      p->signal->memory->timestamp.store(f.ended, std::memory_order_release);
    } else if (x.header()->type == PacketType::signal) {
      if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::signal, p->signal, p->value);
      if (x.command.written)
        signal_wake(*p->signal->memory);
      else
        signal_set(*p->signal->memory, p->value);
    } else if (x.followed && __builtin_expect(recording() != 0, 0)) {
      record_order(q, RecordKind::wait, p->signal, p->value);
    }
  }
  uint64_t position = x.position;
  f.by_host -= x.by_host;
  if (x.followed) queue_release_later(x.followed);
  f.landed.store(f.landed.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // one writer
  f.first = (f.first + 1) % kFlights;
  f.count.store(f.size() - 1, std::memory_order_relaxed);
  if (f.size() && is_command(f.at(0))) q->running.store(f.at(0).head, std::memory_order_release);
  // Last: what it covers may be released by whoever sees it.
  q->done.value.store(f.size() ? position : static_cast<uint64_t>(q->read_position), std::memory_order_release);
}
}  // namespace

Flights* flights_create(const Interface* interface) {
  auto* f = new Flights;
  f->interface = interface;
  return f;
}

void flights_close(Queue* q) {
  if (q->flights->lane) interface_of(q).close(q->flights->lane);
  delete q->flights;
  q->flights = nullptr;
}

bool flights_full(const Queue* q) { return q->flights->size() >= kMostFlights; }

bool flights_none(const Queue* q) { return q->flights->size() == 0; }

void flights_cover(Queue* q) {
  Flights& f = *q->flights;
  f.at(f.size() - 1).position = q->read_position;
}

bool flights_batches(const Queue* q) { return interface_of(q).batch; }

bool flights_promise(const Queue* q, const Signal* signal, uint64_t value) {
  const Flights& f = *q->flights;
  for (uint32_t i = f.size(); i-- > 0;) {
    uint64_t promised = 0;
    if (flight_sets(f.at(i), &promised) == signal) return flight_promises(f.at(i), signal, value);
  }
  return false;
}

bool flights_settle(Queue* q) {
  Flights& f = *q->flights;
  bool any = false;
  while (f.size()) {
    Flight& x = f.at(0);
    bool failed = false;
    if (x.header()->type == PacketType::wait && !reached(x)) break;
    if (x.command.event) {
      std::string why;
      Over over = interface_of(q).over(x.command, &why);
      if (over == Over::no) break;
      failed = over == Over::failed;
      f.failed |= failed;
      if (failed && !q->device->fault.load(std::memory_order_acquire)) {
        Fault fault{q->device->name, name_of(x), why};
        blame(q, &fault);
        device_lose(q->device, fault_record(std::move(fault)), q);  // the first stays
      }
    }
    land(q, failed || f.failed);
    any = true;
  }
  if (any) f.stalled.store(false, std::memory_order_relaxed);
  return any;
}

bool flights_rest(Queue* q, bool stalled) {
  bool any = false;
  Flights& f = *q->flights;
  f.begins = nullptr;
  if (f.unflushed) {
    if (f.lane) interface_of(q).flush(f.lane);
    if (interface_of(q).follow) f.offered.store(true, std::memory_order_relaxed);
  }
  f.unflushed = false;
  f.stalled.store(stalled && f.size(), std::memory_order_relaxed);
  if (interface_of(q).looks_cheaply) any = flights_settle(q);
  while (f.size() && !f.told.load(std::memory_order_relaxed)) {
    uint32_t last = f.size();
    while (last && !f.at(last - 1).command.event) --last;
    if (last) {
      f.told.store(true, std::memory_order_relaxed);  // the interface's own locks order it
      queue_retain(q);
      if (!interface_of(q).tell(f.at(last - 1).command, q)) commands_over(q);  // it is asked again, and again
    }
    // It may have told in this very thread, which finds the step lock taken: then it is over.
    bool some = flights_settle(q);
    any |= some;
    if (!some && last) break;
  }
  return any;
}

bool flights_wanted(const Queue* q) {
  const Flights& f = *q->flights;
  bool more =
      q->tail.load(std::memory_order_acquire) != q->read_position && !q->blocked.load(std::memory_order_relaxed);
  return (more && !f.stalled.load(std::memory_order_relaxed)) || (f.size() && !f.told.load(std::memory_order_relaxed));
}

bool flights_see(const Queue* q, bool (*see)(void*, const PacketHeader*), void* context) {
  const Flights& f = *q->flights;
  for (uint32_t i = 0; i < f.size(); ++i) {
    alignas(kUnit) uint8_t copy[kUnit];
    std::memcpy(copy, f.at(i).head, kUnit);
    auto* h = reinterpret_cast<PacketHeader*>(copy);
    h->record = f.at(i).record;
    if (!see(context, h)) return false;
  }
  return true;
}

void flights_look(Queue* q) {
  if (!q->flights->count.load(std::memory_order_relaxed) || !q->step_lock.try_lock()) return;
  bool any = flights_settle(q);
  any |= flights_rest(q, q->flights->stalled.load(std::memory_order_relaxed));
  const Device* offers = flights_offer(q);
  q->step_lock.unlock();
  if (offers) look_again(offers);
  if (any) signal_wake(q->done);
  leave(q);
}

void commands_over(Queue* q) {
  // seq_cst: before the look at the step lock; who holds it looks here after giving it up
  q->flights->told.store(false, std::memory_order_seq_cst);
  flights_look(q);
  leave(q);
  queue_release_later(q);
}

void begin(Queue* q) {
  if (!q->flights) return doorbell(q);
  // full fence: `tail` before the look at `blocked`; who ends the wait clears that before it looks at `tail`
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (q->blocked.load(std::memory_order_relaxed)) return;
  uint64_t start = now_ns();
  StepResult r = step(q, true, start + kGive);
  // Who ends commands there holds the lock for a moment, and waking a thread takes longer.
  while (r == StepResult::busy && now_ns() - start < kPatience) {
    for (unsigned n = 0; n < 8; ++n) cpu_relax();
    r = step(q, true, start + kGive);
  }
  if (r == StepResult::refused || r == StepResult::busy || r == StepResult::out_of_time) doorbell(q);
}

}  // namespace hcq
