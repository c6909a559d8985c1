// The report on queues (report.hpp). It reads the packets themselves: nothing is written down for it at launch time.
#include "core/report.hpp"

#include <algorithm>
#include <vector>

#include "core/device.hpp"
#include "core/queue_list.hpp"
#include "core/walk.hpp"

namespace hcq {

namespace {
constexpr size_t kBusy = 8;     // queues with work that are told of
constexpr size_t kResting = 4;  // queues without
constexpr size_t kNext = 3;     // commands of a queue that come next

struct State {
  Queue* q;
  Walked walked = Walked::no;
  std::string first;              // the command that runs or is next
  std::vector<std::string> next;  // some behind it
  uint64_t more = 0;              // and how many are behind those
  Signal* signal = nullptr;       // it stands at this
  uint64_t id = 0, value = 0, wanted = 0;
  std::string setter;    // who ends that
  uint64_t highest = 0;  // to which commands set it that don't
  bool lower = false;
  bool waits = false;  // at a wait command
};

bool worth(const Unfinished& u) {
  return !u.opens && u.packet->type != PacketType::barrier && u.packet->type != PacketType::timestamp;
}

void look(State* s, const Queue* mine) {
  s->walked = walk(s->q, mine, [s](const Unfinished& u) {
    if (s->first.empty()) {
      s->first = words(u);
      s->waits = u.packet->type == PacketType::wait;
      if (stands_at(u, s->q->device, &s->signal, &s->wanted)) {
        s->id = s->signal->id;
        s->value = s->signal->memory->value.load(std::memory_order_acquire);
      } else {
        s->signal = nullptr;
      }
    } else if (worth(u)) {
      if (s->next.size() < kNext)
        s->next.push_back(words(u));
      else
        ++s->more;
    }
    return true;
  });
  if (s->walked != Walked::no) return;
  *s = State{s->q};  // it moved on meanwhile: what was gathered doesn't belong together
}

// Who of all queues is to end the waits that queues stand at.
void find_setters(std::vector<State>& states, const std::vector<Queue*>& all, const Queue* mine) {
  if (std::none_of(states.begin(), states.end(), [](const State& s) { return s.signal != nullptr; })) return;
  for (Queue* q : all) {
    if (!q->has_work()) continue;
    walk(q, mine, [&](const Unfinished& u) {
      uint64_t value;
      for (State& s : states) {
        if (!s.signal || !s.setter.empty() || !sets(u, s.signal, &value)) continue;
        if (value >= s.wanted) {
          s.setter = words(u) + " of " + q->name;
        } else {
          s.lower = true;
          s.highest = std::max(s.highest, value);
        }
      }
      return true;
    });
  }
}

std::string ending(const State& s) {
  if (!s.setter.empty()) return s.setter + " is to set it";
  if (s.lower) return "queued commands set it to " + std::to_string(s.highest) + " at most";
  return "nothing that is queued sets it";
}

std::string told(const State& s) {
  std::string last = words_of_last(s.q), text = "  " + s.q->name;
  if (!s.q->has_work()) return text + " is idle; finished last: " + last;
  text += ":\n    finished last: " + (last.empty() ? "nothing" : last);
  if (s.walked == Walked::no) return text + "\n    runs commands";
  if (s.walked == Walked::runs) {
    text += "\n    runs: " + s.first;
  } else if (s.signal) {
    text += s.waits ? "\n    stands at: " + s.first + "; it is "
                    : "\n    stands before: " + s.first + ", until signal #" + std::to_string(s.id) + " is " +
                          std::to_string(s.wanted) + "; it is ";
    text += std::to_string(s.value) + ", and " + ending(s);
  } else {
    text += "\n    begins: " + s.first;
  }
  for (size_t i = 0; i < s.next.size(); ++i) text += (i ? ", " : "\n    next: ") + s.next[i];
  if (s.more) text += ", and " + std::to_string(s.more) + " more";
  return text;
}
}  // namespace

std::string report_queues(const Device* first, const Queue* mine) {
  g_queues->lock.lock();
  std::vector<Queue*> all = g_queues->all;
  for (Queue* q : all) queue_retain(q);
  g_queues->lock.unlock();
  std::vector<Queue*> busy, idle;
  for (Queue* q : all) {
    if (q->has_work())
      busy.push_back(q);
    else if (q->completed.load(std::memory_order_relaxed) && !q->device->closed.load(std::memory_order_relaxed))
      idle.push_back(q);
  }
  auto order = [first](const Queue* a, const Queue* b) {
    return (a->device == first) != (b->device == first) ? a->device == first : a->id < b->id;
  };
  std::sort(busy.begin(), busy.end(), order);
  std::sort(idle.begin(), idle.end(), order);
  size_t left = 0;
  if (busy.size() > kBusy) left += busy.size() - kBusy, busy.resize(kBusy);
  if (idle.size() > kResting) left += idle.size() - kResting, idle.resize(kResting);
  std::vector<State> states;
  for (Queue* q : busy) states.push_back(State{q});
  for (State& s : states) look(&s, mine);
  find_setters(states, all, mine);
  for (Queue* q : idle) states.push_back(State{q});
  std::string text;
  for (const State& s : states) text += (text.empty() ? "" : "\n") + told(s);
  if (left) text += "\n  and " + std::to_string(left) + " more queues";
  for (Queue* q : all) queue_release(q);
  return text;
}

}  // namespace hcq
