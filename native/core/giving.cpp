// Giving commands to an interface, and what is to follow them (flights.hpp).
#include "core/device.hpp"
#include "core/flights.hpp"
#include "core/program.hpp"

namespace hcq {

namespace {
// The end of a packet that the interface refused: the device is lost, once what came before is over.
Gave refused(Queue* q, const std::string& name) {
  Flights& f = *q->flights;
  if (f.size()) return Gave::full;
  Fault fault{q->device->name, name, f.refusal};
  // What another queue's command broke refuses this one.
  Fault broke = fault;
  if (interface_of(q).broken && interface_of(q).broken(q->device->context, &broke.message) && blame(q, &broke))
    fault = std::move(broke);
  device_lose(q->device, fault_record(std::move(fault)), q);
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
  uint64_t value = 0;
  if (x.command.written)
    x.header()->flags |= kWritten;
  else
    x.by_host |= flight_sets(x, &value) != nullptr;
  flight_added(f, x);
  if (f.size() == 1) q->running.store(x.head, std::memory_order_release);
  return Gave::yes;
}

// Lets the lane set the signal of a flight itself, where the host has nothing to tell before: the times of a command,
// say, or a signal behind which this one comes.
void let_set(Queue* q, Flight& x) {
  if (!interface_of(q).signal || q->flights->by_host || x.command.timed) return;
  x.command.sets = flight_sets(x, &x.command.value);
  if (x.command.sets) x.host_sets = x.command.sets->host_sets.load(std::memory_order_relaxed);
}
}  // namespace

Gave flights_exec(Queue* q, uint8_t* packet, const uint8_t* arguments, bool nothing) {
  if (flights_full(q)) return Gave::full;
  auto* p = reinterpret_cast<ExecPacket*>(packet);
  if (!q->flights->refusal.empty()) return refused(q, p->program->name);
  Flight& x = flight_make(q, packet, p->header.flags & kTimed ? 2 : 1);
  std::string error;
  bool done = nothing;
  if (!nothing && flights_open(q, &error)) {
    x.given = now_ns();
    let_set(q, x);
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
    let_set(q, x);
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
  Flights& f = *q->flights;
  Flight& x = flight_make(q, reinterpret_cast<const uint8_t*>(&packet), 1);
  let_set(q, x);
  if (x.command.sets && f.lane && interface_of(q).signal(f.lane, &x.command)) f.unflushed = true;
  x.by_host = !x.command.written;
  flight_added(f, x);
  f.begins = nullptr;
  if (interface_of(q).follow) f.offered.store(true, std::memory_order_relaxed);
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
  x.by_host = true;
  flight_added(f, x);
  return true;
}

}  // namespace hcq
