// What is in flight on a queue of an interface, as the files see it that deal with it: flights.cpp, giving.cpp,
// following.cpp, sleeping.cpp and blame.cpp.
// All of it under the queue's step lock, but for the atomics.
#pragma once
#include <string>

#include "core/interface.hpp"

namespace hcq {

constexpr uint32_t kMostFlights = 64;            // more wait in the ring
constexpr uint32_t kFlights = kMostFlights + 2;  // the end of a submit finds a place always

struct Flight {
  alignas(64) uint8_t head[2 * kUnit];  // the packet, and of a timed launch its extra unit
  Command command;
  uint64_t record, position, given;
  Signal* begins;      // takes the time at which the command began
  Queue* followed;     // of a wait that the lane does: whose command it is for; a reference
  uint64_t follows;    // and that one's number among those that end there
  uint32_t count;      // of commands that it stands for: the packet, and those behind it in bound commands
  uint32_t host_sets;  // of the signal that the lane sets, when it was given
  bool by_host;        // its end is told here: times, or a signal that the lane doesn't set, or follows such a one
  PacketHeader* header() { return reinterpret_cast<PacketHeader*>(head); }
  const PacketHeader* header() const { return reinterpret_cast<const PacketHeader*>(head); }
};

struct Flights {
  const Interface* interface;  // the device may be gone before the queue's last reference is
  Flight slots[kFlights];
  uint32_t first = 0;
  std::atomic<uint32_t> count{0};    // relaxed: other threads look whether there is any, after a full fence
  std::atomic<bool> told{false};     // the interface will call
  std::atomic<bool> stalled{false};  // the next packet can't be given before something is over
  bool unflushed = false;
  bool failed = false;               // a command did: what follows it does too
  std::atomic<bool> offered{false};  // relaxed: commands were given that other queues may stand for
  std::string refusal;               // why the next packet was refused: told once what came before it is over
  void* lane = nullptr;
  Signal* begins = nullptr;  // a time-stamp right before the next command
  uint64_t ended = 0;        // when the last command was over, where a time-stamp follows it
  uint64_t last = 0;         // until when the last one ran that was asked for its times
  uint32_t by_host = 0;      // how many of those in flight are
  // How many ended, ever. Release: who sees one that is counted sees what its end set.
  std::atomic<uint64_t> landed{0};

  Flight& at(uint32_t i) { return slots[(first + i) % kFlights]; }
  const Flight& at(uint32_t i) const { return slots[(first + i) % kFlights]; }
  uint32_t size() const { return count.load(std::memory_order_relaxed); }
};

inline const Interface& interface_of(const Queue* q) { return *q->flights->interface; }

inline bool is_command(const Flight& x) {
  return x.header()->type == PacketType::exec || x.header()->type == PacketType::copy;
}
std::string name_of(const Flight& x);

// A flight for a packet, behind the others. It counts once it is `flight_added`.
Flight& flight_make(Queue* q, const uint8_t* packet, uint32_t units);
inline void flight_added(Flights& f, const Flight& x) {
  f.by_host += x.by_host;
  f.count.store(f.size() + 1, std::memory_order_relaxed);
}
// The signal that the end of a flight sets, or null.
Signal* flight_sets(const Flight& x, uint64_t* value);
// Whether that is `signal`, to `value` or more, and still to come: not set and set back before the end is known here.
bool flight_promises(const Flight& x, const Signal* signal, uint64_t value);
// Says whose failure it may be, where the interface can't: `command`, and in `message` the queues, where it may be
// several. Under q's step lock; the others' are only tried. False: there is nothing better than what stands there.
struct Fault;
bool blame(Queue* q, Fault* fault);
// The lane is opened with the first command that needs it; false: it can't be.
bool flights_open(Queue* q, std::string* error);
// Drops a reference. A lane is not closed here: were it the last one, the pool takes it over.
void queue_release_later(Queue* q);

}  // namespace hcq
