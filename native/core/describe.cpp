// Words for queues and signals (describe.hpp). The ring is the record: nothing is written down for this at launch time.
#include "core/describe.hpp"

#include <vector>

#include "core/queue_list.hpp"
#include "core/scheduler.hpp"
#include "core/walk.hpp"

namespace hcq {

namespace {
constexpr size_t kShown = 4;  // commands an error names
}

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
  if (std::string name = running_name(q); !name.empty()) return q->name + " runs " + name;
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
    if (!q->has_work()) {
      queue_release(q);
      continue;
    }
    size_t before = found;
    uint64_t ahead = 0;
    Walked walked = walk(q, nullptr, [&](const Unfinished& u) {
      uint64_t value;
      if (sets(u, signal, &value) && ++found <= kShown) {
        if (!text.empty()) text += ", ";
        text += "command #" + std::to_string(record_number(u.record)) + " (" + name_of(u) + ") of " + q->name +
                " is to set it to " + std::to_string(value) + ", behind " + std::to_string(ahead) + " others";
      }
      ahead += !u.opens;
      return true;
    });
    if (found > before) {
      text += "; " + describe_queue(q);
    } else if (walked == Walked::no) {
      if (!text.empty()) text += ", ";
      text += describe_queue(q);
    }
    queue_release(q);
  }
  if (found > kShown) text += "; and " + std::to_string(found - kShown) + " more";
  return text.empty() ? "no queued command is to set it" : text;
}

}  // namespace hcq
