// Waiting until what is queued on a device has finished, and whether it has (device_type.cpp has the type).
#include "python/device_wait.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/record.hpp"
#include "core/report.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
// The queues of a device with work, each with a reference and the position it had: others may drop streams meanwhile.
class Positions {
 public:
  explicit Positions(Device* d) {
    d->make_lock.lock();
    for (Queue* q : d->lanes) add(q);  // first: the compute queue stands at waits for these
    d->make_lock.unlock();
    add(d->compute.load(std::memory_order_acquire));
    add(d->copy.load(std::memory_order_acquire));
    d->make_lock.lock();
    for (Queue* q : d->streams) add(q);
    d->make_lock.unlock();
  }
  Positions(const Positions&) = delete;
  Positions& operator=(const Positions&) = delete;
  ~Positions() {
    for (auto& [q, position] : all) queue_release(q);
  }
  std::vector<std::pair<Queue*, uint64_t>> all;

 private:
  void add(Queue* q) {
    if (!q || !q->has_work()) return;
    queue_retain(q);
    all.emplace_back(q, q->tail.load(std::memory_order_acquire));
  }
};

// Whether a queue has work and does not stand at a wait.
bool runs(Device* d) {
  auto moves = [](Queue* q) { return q && q->has_work() && !q->blocked.load(std::memory_order_acquire); };
  bool any = moves(d->compute.load(std::memory_order_acquire)) || moves(d->copy.load(std::memory_order_acquire));
  d->make_lock.lock();
  for (Queue* q : d->streams) any |= moves(q);
  for (Queue* q : d->lanes) any |= moves(q);
  d->make_lock.unlock();
  return any;
}

// Waits until everything queued on the device so far has finished; `stuck` says what a time-out stands at.
Waited drain(Device* d, uint64_t deadline, bool timeline, std::string* stuck) {
  Positions positions(d);
  for (auto& [q, position] : positions.all) {
    Waited waited = wait_commands(q, position, deadline);
    // Of a graph: queues that run are what the others stand waiting for.
    while (waited == Waited::timeout && !d->lanes.empty() && runs(d))
      waited = wait_commands(q, position, now_ns() + 1000000000);
    if (waited == Waited::reached) continue;
    if (waited == Waited::timeout) *stuck = describe_queue(q);
    return waited;
  }
  if (!timeline || d->fault.load(std::memory_order_acquire)) return Waited::reached;
  Signal* s = d->timeline.signal;
  s->refs.fetch_add(1, std::memory_order_relaxed);  // others may give the device another one while we wait
  Wait w{s->memory, d->timeline.next.load(std::memory_order_acquire) - 1};
  w.setter = s->setter.load(std::memory_order_relaxed);
  Waited waited = wait_until(w, deadline);
  if (waited == Waited::timeout) *stuck = describe_setters(s);
  signal_release(s);
  return waited;
}

PyObject* synchronize_now(PyObject* self) {
  Device* d = device_of(self);
  if (!d) return nullptr;
  if (d->closed.load(std::memory_order_relaxed)) {
    device_usable(d);  // raises
    return nullptr;
  }
  // Most often nothing is left: then no clock, no configuration.
  Queue* c = d->compute.load(std::memory_order_acquire);
  Queue* k = d->copy.load(std::memory_order_acquire);
  std::string stuck;
  bool idle = (!c || !c->has_work()) && (!k || !k->has_work()) && d->streams.empty() &&
              d->timeline.signal->memory->value.load(std::memory_order_acquire) + 1 >=
                  d->timeline.next.load(std::memory_order_acquire);
  if (!idle && !d->fault.load(std::memory_order_acquire)) {
    HostSpan span(RecordKind::host_wait, d->timeline.signal->id, d->timeline.next.load(std::memory_order_relaxed) - 1);
    // First without looking up the time-out: the wait is mostly over within microseconds.
    Py_INCREF(self);
    Waited waited = Waited::reached;
    if (c && c->has_work()) step(c, true, now_ns() + 20000);
    idle = (!c || !c->has_work()) && (!k || !k->has_work()) && d->streams.empty() &&
           d->timeline.signal->memory->value.load(std::memory_order_acquire) + 1 >=
               d->timeline.next.load(std::memory_order_acquire);
    if (!idle) {
      uint64_t ms = config_number("TIMEOUT_MS");
      waited = PyErr_Occurred() ? Waited::interrupted : drain(d, deadline_after_ms(ms), true, &stuck);
      if (waited == Waited::timeout && !d->fault.load(std::memory_order_acquire)) {
        Signal* s = d->timeline.signal;
        raise("SignalTimeout", d->name + " did not become idle within " + std::to_string(ms) + " ms: " + stuck +
                                   "; timeline at " + std::to_string(s->memory->value.load()) + ", wanted " +
                                   std::to_string(d->timeline.next.load() - 1));
      }
    }
    Py_DECREF(self);
    if (waited == Waited::interrupted || PyErr_Occurred()) return nullptr;
  } else if (!idle) {
    // Lost: let the queues drop what they hold, so that nothing of it runs later.
    drain(d, now_ns() + 1000000000, false, &stuck);
    if (PyErr_Occurred()) return nullptr;
  }
  run_retired();
  if (uint64_t error = d->fault.load(std::memory_order_acquire)) return raise_fault(error);
  if (d->reported.load(std::memory_order_relaxed)) {
    // acq_rel: exactly one synchronize tells it
    if (uint64_t error = d->reported.exchange(0, std::memory_order_acq_rel)) return raise_fault(error);
  }
  Py_RETURN_NONE;
}
}  // namespace

PyObject* device_synchronize(PyObject* self, PyObject*) {
  if (!watching()) return synchronize_now(self);
  if (tell("synchronize", "(O)", self) == Told::failed) return nullptr;
  Ref result(synchronize_now(self));
  if (!result || tell("synchronized", "(O)", self) == Told::failed) return nullptr;
  return result.release();
}

PyObject* device_busy(PyObject* self, PyObject*) {
  Device* d = device_of(self);
  if (!d) return nullptr;
  bool work = false;
  if (Queue* q = d->compute.load(std::memory_order_acquire)) work |= q->has_work();
  if (Queue* q = d->copy.load(std::memory_order_acquire)) work |= q->has_work();
  for (Queue* q : d->streams) work |= q->has_work();
  return PyBool_FromLong(work);
}

PyObject* device_running(PyObject* self, PyObject*) {
  Device* d = device_of(self);
  if (!d) return nullptr;
  return PyBool_FromLong(runs(d));
}

}  // namespace hcq
