// A queue's lane that stands until another queue's has carried out what it was given, so that the host need not wait.
#include "core/device.hpp"
#include "core/flights.hpp"
#include "core/queue_list.hpp"
#include "core/scheduler.hpp"

namespace hcq {

namespace {
constexpr size_t kMostOthers = 16;
constexpr unsigned kTries = 64;  // some microseconds

// The other queues of a device that have something in flight, with a reference each.
size_t others_in_flight(const Queue* q, Queue** out) {
  size_t count = 0;
  g_queues->lock.lock();
  for (Queue* other : g_queues->all)
    if (other != q && other->device == q->device && other->flights && other->flights->size() && count < kMostOthers &&
        queue_retain_live(other))
      out[count++] = other;
  g_queues->lock.unlock();
  return count;
}

// Has q's lane stand until `other` has carried out what sets `signal` to `value`, if that was given. Under both locks.
bool follow(Queue* q, Queue* other, Signal* signal, uint64_t value, bool* settled) {
  Flights& theirs = *other->flights;
  *settled = flights_settle(other);  // what is over promises nothing
  uint32_t i = 0;
  while (i < theirs.size() && !flight_promises(theirs.at(i), signal, value)) ++i;
  if (i == theirs.size()) return false;
  uint64_t number = theirs.landed.load(std::memory_order_relaxed) + i;
  bool by_host = !theirs.at(i).command.written;
  while (i && !theirs.at(i).command.event) --i;
  std::string unsaid;  // the host waits then
  if (!theirs.at(i).command.event || !flights_open(q, &unsaid)) return false;
  SignalPacket packet{{PacketType::wait, 1, 0, 0}, signal, value};
  Flight& x = flight_make(q, reinterpret_cast<const uint8_t*>(&packet), 1);
  x.given = now_ns();
  if (!interface_of(q).follow(q->flights->lane, theirs.at(i).command, &x.command, &unsaid)) return false;
  queue_retain(other);
  x.followed = other;
  x.follows = number;
  q->flights->unflushed = true;
  x.by_host = by_host;
  flight_added(*q->flights, x);
  return true;
}
}  // namespace

bool flights_follow(Queue* q, Signal* signal, uint64_t value) {
  if (!q->flights || !interface_of(q).follow || flights_full(q) || !q->flights->refusal.empty()) return false;
  Queue* others[kMostOthers];
  size_t count = others_in_flight(q, others);
  bool follows = false;
  for (size_t i = 0; i < count; ++i) {
    // Only tried: two queues may look at each other. Who has the lock now lets us look again where we come to stand.
    bool locked = !follows && others[i]->step_lock.try_lock();
    if (!follows && !locked) {
      others[i]->flights->offered.store(true, std::memory_order_relaxed);
      for (unsigned n = 0; n < kTries && !locked; ++n) {
        cpu_relax();
        locked = others[i]->step_lock.try_lock();
      }
    }
    if (locked) {
      bool settled = false;
      follows = follow(q, others[i], signal, value, &settled);
      others[i]->step_lock.unlock();
      if (settled) signal_wake(others[i]->done);
      leave(others[i]);
    }
    queue_release_later(others[i]);
  }
  return follows;
}

const Device* flights_offer(Queue* q) {
  if (!q->flights->offered.exchange(false, std::memory_order_relaxed) || !blocked_entries()) return nullptr;
  return q->device;
}

void look_again(const Device* device) {
  Queue* standing[kMostOthers];
  size_t count = 0;
  g_queues->lock.lock();
  for (Queue* other : g_queues->all)
    if (other->device == device && other->blocked.load(std::memory_order_relaxed) && count < kMostOthers &&
        queue_retain_live(other))
      standing[count++] = other;
  g_queues->lock.unlock();
  for (size_t i = 0; i < count; ++i) {
    doorbell(standing[i]);
    queue_release_later(standing[i]);
  }
}

}  // namespace hcq
