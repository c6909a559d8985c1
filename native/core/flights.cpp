// What is in flight on a queue whose commands an interface carries out (interface.hpp).
#include "core/flights.hpp"

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

bool flights_open(Queue* q, std::string* error) {
  Flights& f = *q->flights;
  if (!f.lane) f.lane = interface_of(q).open(q->device->context, error);
  return f.lane != nullptr;
}

void queue_release_later(Queue* q) {
  if (q->refs.load(std::memory_order_acquire) == 1) doorbell(q);
  queue_release(q);
}

namespace {
std::string name_of(const Flight& x) {
  std::string name =
      x.header()->type == PacketType::exec ? reinterpret_cast<const ExecPacket*>(x.head)->program->name : "copy";
  return x.count == 1 ? name : "one of " + std::to_string(x.count) + " commands from " + name + " on";
}

bool is_command(const Flight& x) {
  return x.header()->type == PacketType::exec || x.header()->type == PacketType::copy;
}

Timing* timing_of(const Flight& x) {
  if (!(x.header()->flags & kTimed)) return nullptr;
  return x.header()->type == PacketType::exec ? reinterpret_cast<const ExecExtra*>(x.head + kUnit)->timing
                                              : reinterpret_cast<const CopyPacket*>(x.head)->timing;
}

// The end of a packet that the interface refused: the device is lost, once what came before is over.
Gave refused(Queue* q, const std::string& name) {
  Flights& f = *q->flights;
  if (f.size()) return Gave::full;
  device_lose(q->device, fault_record(Fault{q->device->name, name, f.refusal}), q);
  f.refusal.clear();
  return Gave::lost;
}

Gave gave(Queue* q, Flight& x, bool given, const std::string& error) {
  Flights& f = *q->flights;
  if (!given) {
    f.refusal = error;
    return refused(q, name_of(x));
  }
  x.begins = f.begins;
  f.begins = nullptr;
  f.unflushed |= x.command.event != nullptr;  // what is nothing needs no lane
  flight_added(f);
  if (f.size() == 1) q->running.store(x.head, std::memory_order_release);
  return Gave::yes;
}

// Whether what a flight follows is over for the host too: signals are set in the order that queues wait for.
bool reached(const Flight& x) {
  auto* p = reinterpret_cast<const SignalPacket*>(x.head);
  if (signal_reached(*p->signal->memory, p->value) != Reached::no) return true;
  flights_look(x.followed);
  return signal_reached(*p->signal->memory, p->value) != Reached::no;
}

// The end of the oldest flight. What ended well is what it is, on a lost device too.
void land(Queue* q, bool failed) {
  Flights& f = *q->flights;
  Flight& x = f.at(0);
  uint64_t start = 0, end = 0;
  bool stamp = f.size() > 1 && f.at(1).header()->type == PacketType::timestamp && !f.at(1).command.event;
  if (is_command(x) && !failed) {
    if (x.command.event && (x.begins || stamp || x.header()->flags & kTimed || recording()))
      interface_of(q).times(x.command, x.given, &start, &end);
    else if (!x.command.event)
      start = end = now_ns();  // there was nothing to do
    if (x.begins) x.begins->memory->timestamp.store(start, std::memory_order_release);
    f.ended = end;
  }
  if (x.command.event && !failed && x.header()->type == PacketType::timestamp)
    interface_of(q).times(x.command, x.given, &start, &f.ended);
  if (x.command.event) interface_of(q).drop(x.command);
  if (is_command(x)) {
    if (failed) {
      if (Timing* timing = timing_of(x)) timing->release();
      uint64_t value, error = q->device->fault.load(std::memory_order_acquire);
      if (Signal* s = flight_sets(x, &value)) signal_fail(*s->memory, error, value, UINT64_MAX);
      q->completed.store(q->completed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      q->running.store(nullptr, std::memory_order_release);
    } else {
      // The others of a run count; the first is what is told of it.
      if (x.count > 1)
        q->completed.store(q->completed.load(std::memory_order_relaxed) + x.count - 1, std::memory_order_release);
      command_ended(q, x.head, x.record, start, end);
    }
  } else if (failed) {
    uint64_t value, error = q->device->fault.load(std::memory_order_acquire);
    if (Signal* s = flight_sets(x, &value)) signal_fail(*s->memory, error, value, UINT64_MAX);
  } else {
    auto* p = reinterpret_cast<SignalPacket*>(x.head);
    if (x.header()->type == PacketType::timestamp) {
      p->signal->memory->timestamp.store(f.ended, std::memory_order_release);
    } else if (x.header()->type == PacketType::signal) {
      if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::signal, p->signal, p->value);
      signal_set(*p->signal->memory, p->value);
    } else if (x.followed && __builtin_expect(recording() != 0, 0)) {
      record_order(q, RecordKind::wait, p->signal, p->value);
    }
  }
  uint64_t position = x.position;
  if (x.followed) queue_release_later(x.followed);
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
    if (flight_sets(f.at(i), &promised) == signal) return promised >= value;
  }
  return false;
}

Gave flights_exec(Queue* q, uint8_t* packet, const uint8_t* arguments, bool nothing) {
  if (flights_full(q)) return Gave::full;
  auto* p = reinterpret_cast<ExecPacket*>(packet);
  if (!q->flights->refusal.empty()) return refused(q, p->program->name);
  Flight& x = flight_make(q, packet, p->header.flags & kTimed ? 2 : 1);
  std::string error;
  bool done = nothing;
  if (!nothing && flights_open(q, &error)) {
    x.given = now_ns();
    done = interface_of(q).exec(q->flights->lane, *p->program, arguments, p->groups, p->items, &x.command, &error);
  }
  return gave(q, x, done, error);
}

Gave flights_copy(Queue* q, uint8_t* packet) {
  if (flights_full(q)) return Gave::full;
  auto* p = reinterpret_cast<CopyPacket*>(packet);
  if (!q->flights->refusal.empty()) return refused(q, "copy");
  Flight& x = flight_make(q, packet, 1);
  std::string error;
  bool done = p->bytes == 0 || p->destination == p->source;
  if (!done && flights_open(q, &error)) {
    x.given = now_ns();
    done = interface_of(q).copy(q->flights->lane, p->destination, p->source, p->bytes, &x.command, &error);
  }
  return gave(q, x, done, error);
}

Batched flights_batch(Queue* q, uint32_t end, uint32_t count) {
  Flights& f = *q->flights;
  if (flights_full(q)) return Batched::full;
  BoundCommands* commands = q->nested;
  uint32_t offset = q->nested_offset;
  Flight& x = flight_make(q, commands->memory + static_cast<size_t>(offset) * kUnit, 1);
  x.count = count;
  std::string error = f.refusal;
  bool done = false;
  if (error.empty() && flights_open(q, &error)) {
    x.given = now_ns();
    done = interface_of(q).batch(f.lane, commands, offset, end, &x.command, &error);
    if (!done && error.empty()) return Batched::no;
  }
  switch (gave(q, x, done, error)) {
    case Gave::yes:
      return Batched::yes;
    case Gave::full:
      return Batched::full;
    default:
      return Batched::lost;
  }
}

bool flights_signal(Queue* q, Signal* signal, uint64_t value, bool reserve) {
  if (flights_full(q) && !reserve) return false;
  SignalPacket packet{{PacketType::signal, 1, 0, 0}, signal, value};
  flight_make(q, reinterpret_cast<const uint8_t*>(&packet), 1);
  flight_added(*q->flights);
  q->flights->begins = nullptr;
  if (interface_of(q).follow) q->flights->offered.store(true, std::memory_order_relaxed);
  return true;
}

bool flights_timestamp(Queue* q, Signal* signal) {
  Flights& f = *q->flights;
  if (flights_full(q)) return false;
  if (!f.size()) {
    // Nothing runs: it is now, or where a command follows, when that begins.
    signal->memory->timestamp.store(now_ns(), std::memory_order_release);
    f.begins = signal;
    return true;
  }
  SignalPacket packet{{PacketType::timestamp, 1, 0, 0}, signal, 0};
  Flight& x = flight_make(q, reinterpret_cast<const uint8_t*>(&packet), 1);
  std::string unsaid;  // then the end of the command before is the time
  if (interface_of(q).stamp && f.lane) {
    x.given = now_ns();
    if (interface_of(q).stamp(f.lane, &x.command, &unsaid)) f.unflushed = true;
  }
  flight_added(f);
  return true;
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
      if (failed) device_lose(q->device, fault_record(Fault{q->device->name, name_of(x), why}), q);  // the first stays
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
