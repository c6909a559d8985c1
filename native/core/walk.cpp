// Reading packets that others may be running (walk.hpp).
#include "core/walk.hpp"

#include <cstring>

#include "core/device.hpp"
#include "core/interface.hpp"
#include "core/lines.hpp"
#include "core/names.hpp"
#include "core/program.hpp"

namespace hcq {

namespace {
constexpr uint64_t kLooked = 200000;  // packets of a queue that are looked at
constexpr int kTries = 200;           // looks at a queue that moves

// A unit that its consumer may patch meanwhile: relaxed, since `still` says afterwards whether it counts.
void copy_unit(uint8_t* to, const uint8_t* from) {
  for (size_t i = 0; i < kUnit; i += 8) {
    uint64_t word = __atomic_load_n(reinterpret_cast<const uint64_t*>(from + i), __ATOMIC_RELAXED);
    std::memcpy(to + i, &word, 8);
  }
}

// The packets, from where the consumer is. `still` says whether that is where it was: a packet is copied first and
// believed then.
template <class Still>
bool read(Queue* q, const See& see, Still still) {
  // acquire: packets up to `tail` are complete
  uint64_t end = q->tail.load(std::memory_order_acquire), position = q->read_position, seen = 0;
  Segment* segment = q->read_segment;
  uint32_t offset = q->read_offset;
  BoundCommands* nested = q->nested;
  uint32_t nested_at = q->nested_offset;
  uint64_t base = q->base;
  alignas(kUnit) uint8_t outer[kUnit], inner[kUnit];
  auto* h = reinterpret_cast<PacketHeader*>(outer);
  auto* n = reinterpret_cast<PacketHeader*>(inner);
  while (position < end && seen < kLooked) {
    if (!still()) return false;
    copy_unit(outer, segment->data + static_cast<size_t>(offset) * kUnit);
    if (!still()) return false;
    if (h->type == PacketType::link) {
      segment = reinterpret_cast<Segment*>(h->record);
      offset = 0;
      continue;
    }
    uint64_t record = h->record;
    if (h->type == PacketType::indirect) {
      auto* p = reinterpret_cast<IndirectPacket*>(outer);
      if (!nested) {
        nested = p->commands;
        nested_at = 0;
        base = p->base;
        if (h->flags & kWaitPrevious && !see({h, base, record, -1, true})) return true;
      }
      while (nested_at < nested->units && seen < kLooked) {
        copy_unit(inner, nested->memory + static_cast<size_t>(nested_at) * kUnit);
        if (!still()) return false;
        uint64_t line = record_line(n->record);
        uint64_t own = line ? record_number(record) | line << kLineShift : record;
        if (!see({n, base, own, static_cast<int64_t>(record_number(n->record)), false})) return true;
        nested_at += n->units;
        ++seen;
      }
      nested = nullptr;
    }
    if ((h->type != PacketType::indirect || h->flags & kCompletes) && !see({h, 0, record, -1, false})) return true;
    ++seen;
    offset += h->units;
    position += h->units;
  }
  return true;
}

// What an interface has of a queue's commands.
bool see_flights(const Queue* q, const See& see) {
  auto each = [](void* context, const PacketHeader* h) {
    return (*static_cast<const See*>(context))({h, 0, h->record, -1, false});
  };
  return flights_see(q, each, const_cast<See*>(&see));
}

std::string number(uint64_t n) { return std::to_string(n); }

std::string place(uint64_t record, int64_t bound, uint64_t signal, uint64_t value) {
  std::string text = bound < 0 ? " (command #" : " (command " + number(static_cast<uint64_t>(bound)) + " of submit #";
  text += number(record_number(record));
  if (signal) text += ", sets signal #" + number(signal) + " to " + number(value);
  if (std::string line = line_words(record_line(record)); !line.empty()) text += ", " + line;
  return text + ")";
}
}  // namespace

Walked walk(Queue* q, const Queue* mine, const See& see) {
  for (int tries = 0; tries < kTries; ++tries) {
    if (q == mine || q->step_lock.try_lock()) {
      // Nobody else consumes packets while the step lock is held.
      bool flying = q->flights && !flights_none(q);
      if (!flying || see_flights(q, see)) read(q, see, [] { return true; });
      if (q == mine) return flying ? Walked::runs : Walked::stands;
      q->step_lock.unlock();
      leave(q);
      return flying ? Walked::runs : Walked::stands;
    }
    if (q->flights) {  // nobody holds that lock for long
      cpu_relax();
      continue;
    }
    Freeing guard;  // what its packets name stays while we look
    // acquire: what the consumer wrote before it began with that packet is seen
    const uint8_t* running = q->running.load(std::memory_order_acquire);
    uint64_t completed = q->completed.load(std::memory_order_acquire);
    auto still = [&] {
      std::atomic_thread_fence(std::memory_order_acquire);  // what was read before is not read later than this
      return q->running.load(std::memory_order_relaxed) == running &&
             q->completed.load(std::memory_order_relaxed) == completed;
    };
    if (running) return read(q, see, still) ? Walked::runs : Walked::no;
    cpu_relax();  // between two commands
  }
  return Walked::no;
}

bool sets(const Unfinished& u, const Signal* signal, uint64_t* value) {
  if (u.opens) return false;
  uint32_t flags = u.packet->flags;
  switch (u.packet->type) {
    case PacketType::signal: {
      auto* p = reinterpret_cast<const SignalPacket*>(u.packet);
      *value = p->value + (flags & kRelative ? u.base : 0);
      return p->signal == signal;
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<const ExecPacket*>(u.packet);
      *value = p->value;
      return flags & kCompletes && p->signal == signal;
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<const CopyPacket*>(u.packet);
      *value = p->value;
      return flags & kCompletes && p->signal == signal;
    }
    case PacketType::indirect: {
      auto* p = reinterpret_cast<const IndirectPacket*>(u.packet);
      *value = p->value;
      return flags & kCompletes && p->signal == signal;
    }
    default:
      return false;
  }
}

bool stands_at(const Unfinished& u, const Device* device, Signal** signal, uint64_t* value) {
  bool previous = u.packet->flags & kWaitPrevious;
  bool own = true;
  if (u.packet->type == PacketType::wait) {
    auto* p = reinterpret_cast<const SignalPacket*>(u.packet);
    *signal = p->signal;
    *value = p->value + (u.packet->flags & kRelative ? u.base : 0);
    own = p->signal == device->timeline.signal;
  } else if (u.packet->type == PacketType::exec && previous) {
    auto* p = reinterpret_cast<const ExecPacket*>(u.packet);
    *signal = p->signal;
    *value = p->value - 1;
  } else if (u.packet->type == PacketType::copy && previous) {
    auto* p = reinterpret_cast<const CopyPacket*>(u.packet);
    *signal = p->signal;
    *value = p->value - 1;
  } else if (u.packet->type == PacketType::indirect && previous && u.opens) {
    auto* p = reinterpret_cast<const IndirectPacket*>(u.packet);
    *signal = p->signal;
    *value = p->value - 1;
  } else {
    return false;
  }
  const SignalMemory& memory = *(*signal)->memory;
  if (own) return memory.value.load(std::memory_order_acquire) < *value;  // as the processor looks at its own timeline
  return signal_reached(memory, *value) == Reached::no;
}

std::string name_of(const Unfinished& u) {
  switch (u.packet->type) {
    case PacketType::exec:
      return reinterpret_cast<const ExecPacket*>(u.packet)->program->name;
    case PacketType::copy:
      return "copy of " + number(reinterpret_cast<const CopyPacket*>(u.packet)->bytes) + " bytes";
    case PacketType::signal:
      return "signal";
    case PacketType::wait:
      return "wait";
    case PacketType::timestamp:
      return "timestamp";
    case PacketType::indirect:
      return u.opens ? "graph" : "end of a graph";
    default:
      return "memory_barrier";
  }
}

std::string words(const Unfinished& u) {
  const Signal* signal = nullptr;
  uint64_t value = 0;
  if (u.packet->type == PacketType::wait || u.packet->type == PacketType::signal) {
    auto* p = reinterpret_cast<const SignalPacket*>(u.packet);
    signal = p->signal;
    value = p->value + (u.packet->flags & kRelative ? u.base : 0);
    if (u.packet->type == PacketType::wait)
      return "wait for signal #" + number(signal->id) + " to reach " + number(value) + place(u.record, u.bound, 0, 0);
  } else if (u.packet->flags & kCompletes) {
    switch (u.packet->type) {
      case PacketType::exec: {
        auto* p = reinterpret_cast<const ExecPacket*>(u.packet);
        signal = p->signal;
        value = p->value;
        break;
      }
      case PacketType::copy: {
        auto* p = reinterpret_cast<const CopyPacket*>(u.packet);
        signal = p->signal;
        value = p->value;
        break;
      }
      default: {
        auto* p = reinterpret_cast<const IndirectPacket*>(u.packet);
        signal = p->signal;
        value = p->value;
        break;
      }
    }
  }
  return name_of(u) + place(u.record, u.bound, signal ? signal->id : 0, value);
}

std::string words_of_last(const Queue* q) {
  // acquire: the numbers were written before
  if (!q->completed.load(std::memory_order_acquire)) return "";
  std::string name = q->last_program ? program_name(q->last_program) : "copy";
  return name + place(q->last_record, -1, q->last_signal, q->last_value);
}

std::string running_name(Queue* q) {
  Freeing guard;
  const uint8_t* running = q->running.load(std::memory_order_acquire);
  if (!running) return "";
  alignas(kUnit) uint8_t packet[kUnit];
  std::memcpy(packet, running, kUnit);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (q->running.load(std::memory_order_relaxed) != running) return "";
  auto* h = reinterpret_cast<const PacketHeader*>(packet);
  return h->type == PacketType::exec ? reinterpret_cast<const ExecPacket*>(packet)->program->name : "copy";
}

}  // namespace hcq
