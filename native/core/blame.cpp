// Which of a device's commands may be the one that failed, where its interface is told only that one did (flights.hpp).
#include <algorithm>

#include "core/device.hpp"
#include "core/flights.hpp"
#include "core/queue_list.hpp"
#include "core/scheduler.hpp"
#include "core/walk.hpp"

namespace hcq {

namespace {
constexpr unsigned kTries = 1000;  // nobody holds those locks for long
constexpr size_t kMostLooked = 32;

// The first command of a queue that was given and not carried out; null: there is none, or its lane stands for another
// queue's.
const Flight* under_way(const Queue* q) {
  const Flights& f = *q->flights;
  for (uint32_t i = 0; i < f.size(); ++i) {
    const Flight& x = f.at(i);
    if (!x.command.event || interface_of(q).passed(x.command)) continue;
    if (is_command(x)) return &x;
    if (x.header()->type == PacketType::wait) return nullptr;
  }
  return nullptr;
}

std::string of_other(Queue* other) {
  bool locked = other->step_lock.try_lock();
  for (unsigned n = 0; n < kTries && !locked; ++n) {
    cpu_relax();
    locked = other->step_lock.try_lock();
  }
  if (!locked) return running_name(other);  // who holds it is told of the same failure, most likely, and looks at us
  const Flight* x = under_way(other);
  std::string name = x ? name_of(*x) : "";
  other->step_lock.unlock();
  leave(other);
  return name;
}
}  // namespace

bool blame(Queue* q, Fault* fault) {
  if (!interface_of(q).passed) return false;
  std::vector<Queue*> all;
  g_queues->lock.lock();
  for (Queue* each : g_queues->all)
    if (each->device == q->device && each->flights && (each == q || all.size() < kMostLooked) &&
        queue_retain_live(each))
      all.push_back(each);
  g_queues->lock.unlock();
  // Whichever queue was told first, the words are the same.
  std::sort(all.begin(), all.end(), [](const Queue* a, const Queue* b) { return a->id < b->id; });
  std::string names, places;
  size_t count = 0;
  for (Queue* each : all) {
    const Flight* own = each == q ? under_way(q) : nullptr;
    std::string name = each != q ? of_other(each) : own ? name_of(*own) : "";
    if (!name.empty()) {
      names += (count ? ", " : "") + name;
      places += (count ? ", " : "") + name + " of " + each->name;
      ++count;
    }
    queue_release_later(each);
  }
  if (!count) return false;
  fault->command = count == 1 ? names : "one of " + names;
  if (count > 1) fault->message += "; under way were " + places;
  return true;
}

}  // namespace hcq
