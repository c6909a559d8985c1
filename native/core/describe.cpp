// Words for queues and signals (describe.hpp). The ring is the record: nothing is written down for this at launch time.
#include "core/describe.hpp"

#include <vector>

#include "core/program.hpp"
#include "core/queue_list.hpp"
#include "core/scheduler.hpp"

namespace hcq {

namespace {
constexpr size_t kShown = 4;          // commands an error names
constexpr uint64_t kLooked = 200000;  // packets it looks at

// Calls see(packet, ahead, base) for the packets of q that have not run: how many stand before, and what kRelative
// values count from. Returns false when somebody is running the queue: then its packets can't be read.
template <class See>
bool walk(Queue* q, See see) {
  if (!q->step_lock.try_lock()) return false;
  // Packets up to `tail` are complete, and nobody consumes them while we hold the step lock.
  uint64_t end = q->tail.load(std::memory_order_acquire), position = q->read_position, seen = 0;
  Segment* segment = q->read_segment;
  uint32_t offset = q->read_offset;
  bool more = true;
  while (more && position < end && seen < kLooked) {
    auto* h = reinterpret_cast<PacketHeader*>(segment->data + static_cast<size_t>(offset) * kUnit);
    if (h->type == PacketType::link) {
      segment = reinterpret_cast<Segment*>(h->record);
      offset = 0;
      continue;
    }
    if (h->type == PacketType::indirect) {
      auto* bound = reinterpret_cast<IndirectPacket*>(h)->commands;
      uint32_t at = q->nested == bound && seen == 0 ? q->nested_offset : 0;
      while (more && at < bound->units) {
        auto* inner = reinterpret_cast<PacketHeader*>(bound->memory + static_cast<size_t>(at) * kUnit);
        more = see(inner, seen++, reinterpret_cast<IndirectPacket*>(h)->base);
        at += inner->units;
      }
    }
    if (more && (h->type != PacketType::indirect || h->flags & kCompletes)) more = see(h, seen++, 0);
    offset += h->units;
    position += h->units;
  }
  q->step_lock.unlock();
  leave(q);
  return true;
}

struct Sets {
  bool any;
  uint64_t value;
  const char* what;
};

Sets sets(const PacketHeader* h, const Signal* signal, uint64_t base) {
  switch (h->type) {
    case PacketType::signal: {
      auto* p = reinterpret_cast<const SignalPacket*>(h);
      return {p->signal == signal, p->value + (h->flags & kRelative ? base : 0), "signal"};
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<const ExecPacket*>(h);
      return {(h->flags & kCompletes) && p->signal == signal, p->value, p->program->name.c_str()};
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<const CopyPacket*>(h);
      return {(h->flags & kCompletes) && p->signal == signal, p->value, "copy"};
    }
    case PacketType::indirect: {
      auto* p = reinterpret_cast<const IndirectPacket*>(h);
      return {(h->flags & kCompletes) && p->signal == signal, p->value, "graph"};
    }
    default:
      return {false, 0, ""};
  }
}
}  // namespace

std::string describe_signal(const Signal* s) {
  return "signal #" + std::to_string(s->id) + " (value " +
         std::to_string(s->memory->value.load(std::memory_order_acquire)) + ")";
}

std::string describe_queue(Queue* q) {
  if (!q) return "no queued command is to set it";
  if (!q->has_work()) return q->name + " is empty";
  if (BlockedAt at; blocked_at(q, &at))
    return q->name + " stands at a wait for signal #" + std::to_string(at.signal) + " (value " +
           std::to_string(at.value) + ") to reach " + std::to_string(at.wanted);
  if (Program* p = q->exec_program.load(std::memory_order_relaxed)) return q->name + " runs " + p->name;
  return q->name + " has commands left";
}

std::string describe_setters(const Signal* signal) {
  g_queues->lock.lock();
  std::vector<Queue*> all = g_queues->all;
  for (Queue* q : all) queue_retain(q);
  g_queues->lock.unlock();
  std::string text;
  size_t found = 0;
  for (Queue* q : all) {
    size_t before = found;
    bool read = walk(q, [&](const PacketHeader* h, uint64_t ahead, uint64_t base) {
      Sets s = sets(h, signal, base);
      if (!s.any) return true;
      if (++found <= kShown) {
        if (!text.empty()) text += ", ";
        text += "command #" + std::to_string(h->record) + " (" + s.what + ") of " + q->name + " is to set it to " +
                std::to_string(s.value) + ", behind " + std::to_string(ahead) + " others";
      }
      return true;
    });
    if (!read && q->has_work()) {
      if (!text.empty()) text += ", ";
      text += describe_queue(q);
    } else if (found > before) {
      text += "; " + describe_queue(q);
    }
    queue_release(q);
  }
  if (found > kShown) text += "; and " + std::to_string(found - kShown) + " more";
  return text.empty() ? "no queued command is to set it" : text;
}

}  // namespace hcq
