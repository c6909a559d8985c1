// A thread that waits, and sleeps in the driver of an interface meanwhile (interface.hpp).
#include "core/flights.hpp"

namespace hcq {

namespace {
constexpr unsigned kTries = 64;  // some microseconds, for the step lock
}

bool flights_sleeps(const Queue* q) { return interface_of(q).sleep && !flights_none(q); }

bool flights_sleep(Queue* q, const SignalMemory& memory, uint64_t value, uint64_t ns) {
  Flights& f = *q->flights;
  if (!interface_of(q).sleep || !f.count.load(std::memory_order_relaxed)) return false;
  bool locked = q->step_lock.try_lock();
  for (unsigned n = 0; n < kTries && !locked; ++n) {
    cpu_relax();
    locked = q->step_lock.try_lock();
  }
  if (!locked) return false;
  bool own = &memory == &q->done;  // a position of the queue itself
  uint32_t i = 0, last = f.size();
  for (; i < last; ++i) {
    uint64_t promised = 0;
    Signal* s = own ? nullptr : flight_sets(f.at(i), &promised);
    if (own ? f.at(i).position >= value || i + 1 == last : s && s->memory == &memory && promised >= value) break;
  }
  bool found = i < last;
  while (found && i && !f.at(i).command.event) --i;
  found = found && f.at(i).command.event;
  uint64_t number = found ? interface_of(q).mark(f.at(i).command) : 0;
  q->step_lock.unlock();
  leave(q);
  if (!found) return false;
  interface_of(q).sleep(f.lane, number, ns);  // a lane stays as long as its queue
  flights_look(q);
  return true;
}

}  // namespace hcq
