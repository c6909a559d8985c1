// Retirement by queue positions (retire.hpp, docs/design/lifetimes.md).
#include "core/retire.hpp"

#include <deque>

#include "core/queue_list.hpp"

namespace hcq {

namespace {
struct Entry {
  Stamp stamp;
  void (*fn)(void*);
  void* p;
  PyObject* object;  // instead of fn: needs the GIL
};
struct Pending {
  SpinLock lock;
  std::deque<Entry> entries;
  std::atomic<size_t> count{0};  // read without the lock, to see that there is nothing to do
};
Pending* g_pending = new Pending;

void add(Entry entry) {
  g_pending->lock.lock();
  g_pending->entries.push_back(std::move(entry));
  g_pending->count.store(g_pending->entries.size(), std::memory_order_relaxed);
  g_pending->lock.unlock();
}

// Takes the oldest entry if it is due. Stamps of later entries are supersets in time, so the oldest is due first.
bool take(Entry* out) {
  g_pending->lock.lock();
  bool due = !g_pending->entries.empty() && g_pending->entries.front().stamp.passed();
  if (due) {
    *out = std::move(g_pending->entries.front());
    g_pending->entries.pop_front();
    g_pending->count.store(g_pending->entries.size(), std::memory_order_relaxed);
  }
  g_pending->lock.unlock();
  return due;
}
}  // namespace

void retire_after_fork() { g_pending = new Pending; }

Stamp::~Stamp() {
  if (generation_ != g_generation) return;
  for (auto& [q, position] : positions_) queue_release(q);
}

Stamp Stamp::now() {
  Stamp s;
  g_queues->lock.lock();
  for (Queue* q : g_queues->all) {
    uint64_t tail = q->tail.load(std::memory_order_acquire);
    if (tail == q->done.value.load(std::memory_order_acquire)) continue;
    queue_retain(q);
    s.positions_.emplace_back(q, tail);
  }
  g_queues->lock.unlock();
  return s;
}

bool Stamp::passed() const {
  for (auto& [q, position] : positions_)
    if (q->done.value.load(std::memory_order_acquire) < position) return false;
  return true;
}

void Stamp::help() const {
  for (auto& [q, position] : positions_)
    if (q->done.value.load(std::memory_order_acquire) < position) step(q, true, now_ns() + 20000);
}

void retire(void (*fn)(void*), void* p) {
  Stamp s = Stamp::now();
  if (s.empty())
    fn(p);
  else
    add(Entry{std::move(s), fn, p, nullptr});
}

void retire_object(PyObject* object) {
  Stamp s = Stamp::now();
  if (s.empty())
    Py_DECREF(object);
  else
    add(Entry{std::move(s), nullptr, nullptr, object});
}

void retire_object_later(PyObject* object) { add(Entry{Stamp::now(), nullptr, nullptr, object}); }

void run_retired() {
  if (g_pending->count.load(std::memory_order_relaxed) == 0) return;
  Entry entry;
  while (take(&entry)) {
    if (entry.object)
      Py_DECREF(entry.object);
    else
      entry.fn(entry.p);
  }
}

}  // namespace hcq
