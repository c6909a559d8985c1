// Errors by name, numbers from Python, and waiting (common.hpp).
#include "python/common.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/interface.hpp"
#include "core/scheduler.hpp"
#include "core/walk.hpp"
#include "platform/platform.hpp"

namespace hcq {

PyObject* raise(const char* name, const std::string& message) {
  Ref module(PyImport_ImportModule("hcq.errors"));
  if (!module) return nullptr;
  Ref cls(PyObject_GetAttrString(module.get(), name));
  if (!cls) return nullptr;
  if (std::string(name) == "SignalTimeout") {
    Ref report(PyImport_ImportModule("hcq.queues.report"));
    Ref more(report ? PyObject_CallMethod(report.get(), "explained", "s", message.c_str()) : nullptr);
    if (more) PyErr_SetObject(cls.get(), more.get());
    return nullptr;
  }
  PyErr_SetString(cls.get(), message.c_str());
  return nullptr;
}

PyObject* raise_forked(uint32_t generation, const std::string& what) {
  Ref module(PyImport_ImportModule("hcq.runtime.process"));
  if (!module) return nullptr;
  Ref error(PyObject_CallMethod(module.get(), "forked", "Is", generation, what.c_str()));
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return nullptr;
}

PyObject* raise_fault(uint64_t error) {
  Ref module(PyImport_ImportModule("hcq.queues.faults"));
  if (!module) return nullptr;
  Ref result(PyObject_CallMethod(module.get(), "raise_fault", "K", static_cast<unsigned long long>(error)));
  return nullptr;
}

uint64_t config_number(const char* variable) {
  Ref module(PyImport_ImportModule("hcq.config"));
  if (!module) return 0;
  Ref value(PyObject_CallMethod(module.get(), variable, nullptr));
  if (!value) return 0;
  return PyLong_AsUnsignedLongLong(value.get());
}

bool parse_u64(PyObject* value, uint64_t* out, const char* what) {
  Ref number(PyNumber_Index(value));
  if (!number) {
    PyErr_Format(PyExc_TypeError, "%s must be a whole number, not %.100s", what, Py_TYPE(value)->tp_name);
    return false;
  }
  *out = PyLong_AsUnsignedLongLong(number.get());
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2^64-1, got %S", what, number.get());
  return false;
}

uint64_t deadline_after_ms(uint64_t ms) {
  if (ms > 1000ull * 86400 * 365 * 100) return UINT64_MAX;
  return now_ns() + ms * 1000000;
}

namespace {
// Steps q, and where it stands at a wait, the queue that is to end that. True: a command was left to the pool.
bool help(Queue* q, uint64_t deadline, int depth = 0) {
  if (!queue_retain_live(q)) return false;
  StepResult r = step(q, true, deadline);
  bool left = r == StepResult::refused;
  if (r == StepResult::blocked && depth < 8) {
    Queue* other = blocked_setter(q);
    if (other && other != q) {
      left = help(other, deadline, depth + 1);
      if (now_ns() < deadline) step(q, true, deadline);
    }
    if (other) queue_release(other);
  }
  queue_release(q);
  return left;
}

// ns that a waiting thread, without the GIL, helps before it looks up: running a command of milliseconds itself is
// cheaper than waking a thread for it, and a pending Control-C can wait that long.
constexpr uint64_t kHelp = 5000000;

Reached look(const Wait& w) {
  if (!w.own) return signal_reached(*w.memory, w.value);
  return w.memory->value.load(std::memory_order_acquire) >= w.value ? Reached::yes : Reached::no;
}

// Where an interface has commands of the queues that a thread waits for, that looks whether they are over.
constexpr uint64_t kWatchFlights = 60000;  // ns, before it sleeps: drivers take some 30 us to wake their own threads

// Whether to look again. Who can sleep in a driver had better: its threads need the core.
bool look_at_flights(Queue* q) {
  if (!queue_retain_live(q)) return false;
  bool any = q->flights && !flights_none(q);
  if (any) flights_look(q);
  any = any && !flights_sleeps(q);
  queue_release(q);
  return any;
}

Reached watch_flights(const Wait& w, uint64_t until) {
  for (;;) {
    bool any = look_at_flights(w.setter);
    any |= look_at_flights(w.setter2);
    Reached r = look(w);
    if (!any || r != Reached::no || now_ns() >= until) return r;
    for (unsigned n = 0; n < 24; ++n) cpu_relax();  // looking takes the lock that the driver needs
  }
}

// Sleeps in a driver until what is in flight brings about what is waited for. False: there is nothing of the kind.
bool sleep_at_flights(Queue* q, const Wait& w, uint64_t ns) {
  if (!queue_retain_live(q)) return false;
  bool slept = q->flights && flights_sleep(q, *w.memory, w.value, ns);
  queue_release(q);
  return slept;
}

bool sleeps(Queue* q) {
  if (!queue_retain_live(q)) return false;
  bool sleeps = q->flights && flights_sleeps(q);
  queue_release(q);
  return sleeps;
}

// A command that runs for longer than HCQ_KERNEL_TIMEOUT_MS loses its device.
class Watch {
 public:
  explicit Watch(Queue* q) : queue(queue_retain_live(q) ? q : nullptr) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    if (queue) queue_release(queue);
  }

  // The error word of the device, once it is lost by the command that still runs: what is behind that will never come.
  uint64_t hung() const {
    if (!queue || !queue->has_work()) return 0;
    if (queue->hung.load(std::memory_order_acquire) != queue->completed.load(std::memory_order_relaxed)) return 0;
    return queue->device->fault.load(std::memory_order_acquire);
  }

  // With the GIL: so no program is freed meanwhile.
  void check(uint64_t limit_ns) {
    if (!queue || !limit_ns) return;
    uint64_t now = now_ns(), at = queue->completed.load(std::memory_order_relaxed);
    bool busy = queue->running.load(std::memory_order_relaxed) != nullptr;
    if (at != position || !busy || !since) {
      position = at;
      since = now;
      return;
    }
    if (now - since < limit_ns) return;
    // release: the loss is seen by whoever sees this; before it, since waiters are woken by the loss
    queue->hung.store(at, std::memory_order_release);
    if (queue->device->fault.load(std::memory_order_acquire)) return;
    std::string name = running_name(queue);
    device_lose(queue->device, fault_record(Fault{queue->device->name, name.empty() ? "command" : name,
                                                  "ran longer than HCQ_KERNEL_TIMEOUT_MS (" +
                                                      std::to_string(limit_ns / 1000000) + " ms)"}));
  }

 private:
  Queue* queue;
  uint64_t position = 0, since = 0;
};
}  // namespace

Waited wait_until(const Wait& w, uint64_t deadline) {
  Reached r = look(w);
  if (r == Reached::no) {
    uint64_t soon = now_ns() + 20000;
    if (soon > deadline) soon = deadline;
    help(w.setter, soon);
    r = look(w);
    if (r == Reached::no && w.setter2) {
      help(w.setter2, soon);
      r = look(w);
    }
    if (r == Reached::no) r = watch_flights(w, soon);
  }
  if (r != Reached::no) return r == Reached::yes ? Waited::reached : Waited::failed;
  uint64_t limit_ns = config_number("KERNEL_TIMEOUT_MS") * 1000000;
  if (PyErr_Occurred()) return Waited::interrupted;
  Watch watch(w.setter), watch2(w.setter2);
  bool spins = !sleeps(w.setter) && !sleeps(w.setter2);
  uint64_t looked = now_ns();  // when signals of Python and the length of commands were last looked at
  PyThreadState* thread = PyEval_SaveThread();
  Waited result = Waited::timeout;
  for (uint64_t round = 0;; ++round) {
    uint64_t now = now_ns();
    uint64_t until = now + kHelp < deadline ? now + kHelp : deadline;
    bool left = help(w.setter, until);
    if (w.setter2) left |= help(w.setter2, until);
    if ((r = look(w)) != Reached::no) break;
    if (left || round == 0) urge();  // what is left to the pool starts now, not at the end of a nap
    if ((r = watch_flights(w, std::min(until, now_ns() + kWatchFlights))) != Reached::no) break;
    uint64_t spin_end = now_ns() + 5000;
    for (unsigned n = 0; r == Reached::no && spins; ++n) {
      cpu_relax();
      r = look(w);
      if ((n & 15) == 15 && now_ns() >= spin_end) break;
    }
    if (r != Reached::no) break;
    if (uint64_t error = watch.hung() ? watch.hung() : watch2.hung()) {
      if (!w.own) signal_fail(*w.memory, error, w.value, UINT64_MAX);
      r = Reached::failed;
      break;
    }
    now = now_ns();
    if (now >= deadline) {
      r = look(w);  // once more: it may have come while we looked at the clock
      break;
    }
    uint64_t slice = deadline - now < w.slice_ns ? deadline - now : w.slice_ns;
    bool woken = sleep_at_flights(w.setter, w, slice) || sleep_at_flights(w.setter2, w, slice);
    if (!woken) {
      // seq_cst: the setter stores the value before it reads `sleepers` (docs/design/signals.md)
      w.memory->sleepers.fetch_add(1, std::memory_order_seq_cst);
      uint32_t seen = w.memory->wake.load(std::memory_order_acquire);
      if ((r = look(w)) == Reached::no) woken = futex_wait(&w.memory->wake, seen, slice, true);
      w.memory->sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    if ((r = look(w)) != Reached::no) break;
    // By the clock too: a signal that never rests, or a queue that always has something short, mustn't hold Control-C.
    if (!woken || now_ns() - looked >= 50000000) {
      PyEval_RestoreThread(thread);
      watch.check(limit_ns);
      watch2.check(limit_ns);
      if (PyErr_CheckSignals() != 0) return Waited::interrupted;
      looked = now_ns();
      thread = PyEval_SaveThread();
    }
  }
  PyEval_RestoreThread(thread);
  if (r == Reached::yes) result = Waited::reached;
  if (r == Reached::failed) result = Waited::failed;
  return result;
}

Waited wait_position(Queue* q, uint64_t position, uint64_t deadline) {
  Wait w{&q->done, position};
  w.own = true;
  w.setter = q;
  w.slice_ns = 2000000;  // woken when the queue runs out of work, not at each position
  return wait_until(w, deadline);
}

Waited wait_commands(Queue* q, uint64_t position, uint64_t deadline) {
  for (;;) {
    Waited waited = wait_position(q, position, deadline);
    if (waited != Waited::timeout || q->blocked.load(std::memory_order_acquire)) return waited;
    if (q->device->fault.load(std::memory_order_acquire)) return Waited::failed;
    deadline = now_ns() + 1000000000;
  }
}

bool reserve(Queue* q, uint64_t units, uint32_t largest, Timeline* timeline) {
  uint64_t deadline = 0;
  for (;;) {
    if (deadline && !device_usable(q->device)) return false;  // it may have been closed or lost while we waited
    if (timeline) timeline->lock.lock();
    q->produce.lock();
    Room room = queue_room(q, units, largest);
    if (room == Room::yes) return true;
    q->produce.unlock();
    if (timeline) timeline->lock.unlock();
    if (room == Room::no_memory) {
      PyErr_NoMemory();
      return false;
    }
    if (room == Room::never) {
      raise("LaunchError", "this submit takes " + std::to_string(units * kUnit) +
                               " bytes of queue, more than HCQ_QUEUE_LIMIT (" + std::to_string(queue_limit_bytes()) +
                               "): split it, bind it, or raise the limit");
      return false;
    }
    if (!deadline) {
      deadline = deadline_after_ms(config_number("TIMEOUT_MS"));
      if (PyErr_Occurred()) return false;
    }
    // The queue is full: wait (and help) until it has moved on.
    uint64_t at = q->done.value.load(std::memory_order_acquire);
    if (at == q->tail.load(std::memory_order_acquire)) continue;  // it has run empty meanwhile: nothing more will move
    Waited waited = wait_position(q, at + 1, deadline);
    if (waited == Waited::interrupted) return false;
    if (waited == Waited::timeout) {
      raise("SignalTimeout", q->name + " is full (HCQ_QUEUE_LIMIT) and did not move: " + describe_queue(q) +
                                 "; nothing of this submit was queued");
      return false;
    }
  }
}

}  // namespace hcq
