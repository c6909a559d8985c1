// Submitting a graph's commands, and _native.Replay: the handle of one replay, to wait for it.
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/interface.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/graph.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
PyTypeObject* Replay_Type;

constexpr uint32_t kInlinePatches = 128;  // more travel in memory of their own

// What a lane's part of a replay needs in its queue.
struct Part {
  GraphLane* lane;
  Patch* list;     // malloc'ed, or null: inline
  uint32_t units;  // of the packet
};

// How far the queues must be, and what says that it went well.
struct Passed {
  Queue* queue;  // a reference
  uint64_t position;
  Signal* timeline;  // a reference; null for lanes beside the device's own
  uint64_t value;
};

struct ReplayObject {
  PyObject_VAR_HEAD PyObject* graph;
  uint32_t generation;
  PyObject* weakrefs;
  Passed passed[1];
};

ReplayObject* cast(PyObject* o) { return reinterpret_cast<ReplayObject*>(o); }

// All devices can take work, and nobody holds their timelines; false with an exception.
bool devices_ready(GraphState* g) {
  for (bool again = true; again;) {
    again = false;
    for (GraphLane& l : g->lanes) {
      if (!device_usable(l.device)) return false;
      auto* d = reinterpret_cast<DeviceObject*>(l.device_object);
      if (!d->lock_owner || d->lock_owner == PyThread_get_thread_ident()) continue;
      if (!timeline_lock_free(d)) return false;  // may give up the GIL: look at all of them once more
      again = true;
    }
  }
  for (GraphLane& l : g->lanes) {
    if (!l.main || !l.device->injections.load(std::memory_order_relaxed)) continue;
    if (uint64_t error = injected(l.device, InjectWhat::submit, "graph")) {
      device_lose(l.device, error);
      raise_fault(error);
      return false;
    }
  }
  return true;
}

// The locks of all timelines, then of all queues, each in the order of addresses.
void lock_all(GraphState* g) {
  for (Timeline* t : g->timelines) t->lock.lock();
  for (Queue* q : g->queues) q->produce.lock();
}

void unlock_all(GraphState* g) {
  for (Queue* q : g->queues) q->produce.unlock();
  for (Timeline* t : g->timelines) t->lock.unlock();
}

void forget(std::vector<Part>* parts) {
  for (Part& p : *parts) std::free(p.list);
  parts->clear();
}

// What each lane's part of the next replay needs; false with an exception.
bool gather(GraphState* g, std::vector<Part>* parts) {
  try {
    for (GraphLane& l : g->lanes) {
      if (!l.commands) continue;
      size_t bytes = l.pending.size() * sizeof(Patch);
      bool apart = l.pending.size() > kInlinePatches;
      parts->push_back({&l, nullptr, apart ? 1 : 1 + static_cast<uint32_t>((bytes + kUnit - 1) / kUnit)});
      if (!apart) continue;
      Patch* list = parts->back().list = static_cast<Patch*>(std::malloc(bytes));
      if (!list) throw std::bad_alloc();
      std::memcpy(list, l.pending.data(), bytes);
    }
  } catch (const std::bad_alloc&) {
    forget(parts);
    PyErr_NoMemory();
    return false;
  }
  return true;
}

// Takes the locks once every queue has room; false with an exception and no lock held.
bool reserve_all(GraphState* g, const std::vector<Part>& parts) {
  uint64_t deadline = 0;
  for (;;) {
    if (deadline && !devices_ready(g)) return false;
    lock_all(g);
    Queue* full = nullptr;
    Room room = Room::yes;
    for (const Part& p : parts) {
      room = queue_room(p.lane->queue, p.units, p.units);
      if (room == Room::yes) continue;
      full = p.lane->queue;
      break;
    }
    if (!full) return true;
    unlock_all(g);
    if (room != Room::full) {
      PyErr_NoMemory();
      return false;
    }
    if (!deadline) {
      deadline = deadline_after_ms(config_number("TIMEOUT_MS"));
      if (PyErr_Occurred()) return false;
    }
    uint64_t at = full->done.value.load(std::memory_order_acquire);
    if (at == full->tail.load(std::memory_order_acquire)) continue;  // it has run empty meanwhile
    Waited waited = wait_position(full, at + 1, deadline);
    if (waited == Waited::interrupted) return false;
    if (waited == Waited::timeout) {
      raise("SignalTimeout", full->name + " is full (HCQ_QUEUE_LIMIT) and did not move: " + describe_queue(full) +
                                 "; nothing of this replay was queued");
      return false;
    }
  }
}

// The packets of one replay; under the locks. Fills `out`, an entry a part.
void write_parts(GraphState* g, const std::vector<Part>& parts, uint64_t line, Passed* out) {
  uint64_t base = g->replays++ * g->stride;
  for (Timeline* t : g->timelines) t->next.fetch_add(1, std::memory_order_relaxed);  // under its lock
  for (const Part& part : parts) {
    GraphLane& l = *part.lane;
    Timeline& t = l.device->timeline;
    auto* p = reinterpret_cast<IndirectPacket*>(queue_write(l.queue, part.units));
    p->header = {PacketType::indirect, static_cast<uint16_t>(part.units),
                 kEndOfSubmit | kWaitPrevious | (l.main ? static_cast<uint32_t>(kCompletes) : 0u),
                 ++l.queue->records | line};
    p->commands = l.commands;
    p->patches = static_cast<uint32_t>(l.pending.size());
    p->patch_list = part.list;
    if (!part.list && !l.pending.empty()) std::memcpy(p + 1, l.pending.data(), l.pending.size() * sizeof(Patch));
    g->changes += !l.pending.empty();
    l.pending.clear();
    p->signal = t.signal;
    p->value = t.next.load(std::memory_order_relaxed) - 1;
    p->base = base;
    // relaxed: a hint for who waits
    if (l.counter->setter.load(std::memory_order_relaxed) != l.queue)
      l.counter->setter.store(l.queue, std::memory_order_relaxed);
    if (l.main && t.signal->setter.load(std::memory_order_relaxed) != l.queue)
      t.signal->setter.store(l.queue, std::memory_order_relaxed);
    queue_retain(l.queue);
    *out = {l.queue, l.queue->write_position, nullptr, p->value};
    if (l.main) {
      t.signal->refs.fetch_add(1, std::memory_order_relaxed);  // the device holds one
      out->timeline = t.signal;
    }
    ++out;
  }
  for (const Part& part : parts) queue_publish(part.lane->queue);
}

// (device, signal, value) of the timelines, for who watches.
bool tell_replayed(PyObject* graph, const std::vector<Part>& parts, ReplayObject* replay) {
  Ref pairs(PyList_New(0));
  for (size_t i = 0; pairs && i < parts.size(); ++i) {
    if (!parts[i].lane->main) continue;
    auto* device = reinterpret_cast<DeviceObject*>(parts[i].lane->device_object);
    Ref pair(Py_BuildValue("(OOK)", device, device->timeline_signal,
                           static_cast<unsigned long long>(replay->passed[i].value)));
    if (!pair || PyList_Append(pairs.get(), pair.get()) < 0) return false;
  }
  PyObject* part = reinterpret_cast<GraphObject*>(graph)->part;
  return pairs && tell("replayed", "(OO)", part ? part : Py_None, pairs.get()) != Told::failed;
}

bool finished(const Passed& p) { return p.queue->done.value.load(std::memory_order_acquire) >= p.position; }

bool replay_usable(ReplayObject* self) {
  if (__builtin_expect(self->generation == g_generation, 1)) return true;
  raise_forked(self->generation, "a replay");
  return false;
}

// Whether one of its queues has work and does not stand at a wait: the others wait for it.
bool runs(ReplayObject* self) {
  for (Py_ssize_t i = 0; i < Py_SIZE(self); ++i) {
    Queue* q = self->passed[i].queue;
    if (!finished(self->passed[i]) && !q->blocked.load(std::memory_order_acquire)) return true;
  }
  return false;
}

// Waits for one queue; false with an exception. Without a time-out of the caller's, commands may run as long as
// HCQ_KERNEL_TIMEOUT_MS lets them.
bool wait_passed(ReplayObject* self, const Passed& p, bool limited, uint64_t* deadline, uint64_t* ms) {
  if (finished(p)) return true;
  step(p.queue, true, now_ns() + 20000);
  if (finished(p)) return true;
  if (!*deadline) {
    if (!limited) *ms = config_number("TIMEOUT_MS");
    if (PyErr_Occurred()) return false;
    *deadline = deadline_after_ms(*ms);
  }
  Waited waited;
  do {
    waited = limited ? wait_position(p.queue, p.position, *deadline) : wait_commands(p.queue, p.position, *deadline);
    if (waited == Waited::timeout && !limited && runs(self)) *deadline = now_ns() + 1000000000;
  } while (waited == Waited::timeout && now_ns() < *deadline);
  if (waited == Waited::failed) raise_fault(p.queue->device->fault.load(std::memory_order_acquire));
  if (waited == Waited::timeout)
    raise("SignalTimeout",
          "the replay did not finish within " + std::to_string(*ms) + " ms: " + describe_queue(p.queue));
  return waited == Waited::reached;
}

PyObject* wait(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  ReplayObject* self = cast(object);
  if (!replay_usable(self)) return nullptr;
  PyObject* timeout = count == 1 ? args[0] : nullptr;
  if (names && PyTuple_GET_SIZE(names) == 1 && !count &&
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0)
    timeout = args[0];
  else if (count > 1 || (names && PyTuple_GET_SIZE(names)))
    return PyErr_Format(PyExc_TypeError, "wait takes a timeout in milliseconds, and nothing else");
  uint64_t ms = 0, deadline = 0;
  bool limited = timeout && timeout != Py_None;
  if (limited) {
    double t = PyFloat_AsDouble(timeout);
    if (t == -1.0 && PyErr_Occurred()) return nullptr;
    if (!(t >= 0)) return PyErr_Format(PyExc_ValueError, "timeout is in milliseconds, 0 or more, got %S", timeout);
    ms = t > 1e15 ? UINT64_MAX : static_cast<uint64_t>(t);
  }
  Py_INCREF(object);
  HostSpan span(RecordKind::host_wait);
  Ref kept(object);  // another thread may drop the last reference while we sleep
  Py_ssize_t n = Py_SIZE(object);
  // Lanes beside a device's own queue first: that waits for them.
  for (Py_ssize_t i = n; i-- > 0;)
    if (!wait_passed(self, self->passed[i], limited, &deadline, &ms)) return nullptr;
  run_retired();
  for (Py_ssize_t i = 0; i < n; ++i) {
    const Passed& p = self->passed[i];
    Device* d = p.queue->device;
    if (p.timeline && signal_reached(*p.timeline->memory, p.value) == Reached::failed) {
      uint64_t error = d->fault.load(std::memory_order_acquire);
      // acq_rel: a submit that was dropped because of another device is told once
      uint64_t other = error ? 0 : d->reported.exchange(0, std::memory_order_acq_rel);
      return raise_fault(error ? error : other ? other : p.timeline->memory->error.load(std::memory_order_acquire));
    }
    if (watching() && p.timeline) {
      Ref signal(signal_object(p.timeline));
      if (!signal || tell("waited", "(OK)", signal.get(), static_cast<unsigned long long>(p.value)) == Told::failed)
        return nullptr;
    }
  }
  Py_RETURN_NONE;
}

PyObject* get_done(PyObject* object, void*) {
  ReplayObject* self = cast(object);
  if (!replay_usable(self)) return nullptr;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    if (!finished(self->passed[i])) Py_RETURN_FALSE;
  Py_RETURN_TRUE;
}

PyObject* replay_repr(PyObject* object) {
  ReplayObject* self = cast(object);
  if (self->generation != g_generation) return PyUnicode_FromString("<Replay inherited through fork>");
  std::string where;
  bool over = true;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
    over &= finished(self->passed[i]);
    if (self->passed[i].timeline) where += (where.empty() ? "" : ", ") + self->passed[i].queue->device->name;
  }
  return PyUnicode_FromFormat("<Replay on %s, %s>", where.c_str(), over ? "over" : "under way");
}

void replay_dealloc(PyObject* object) {
  ReplayObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  for (Py_ssize_t i = 0; self->generation == g_generation && i < Py_SIZE(object); ++i) {
    if (self->passed[i].queue) queue_release(self->passed[i].queue);
    if (self->passed[i].timeline) signal_release(self->passed[i].timeline);
  }
  Py_XDECREF(self->graph);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

int replay_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(cast(object)->graph);
  return 0;
}

PyMethodDef methods[] = {
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wait)), METH_FASTCALL | METH_KEYWORDS,
     "wait(timeout=None)\n--\n\nReturn once the replay is over. Blocks, at most `timeout` milliseconds "
     "(HCQ_TIMEOUT_MS);\nthe thread may run commands itself. Raises DeviceLost when a command failed, SignalTimeout."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {{"done", get_done, nullptr, "Whether it is over; never blocks.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(ReplayObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(replay_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(replay_traverse)},
    {Py_tp_repr, reinterpret_cast<void*>(replay_repr)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("One replay of a graph. It may be dropped without waiting. Any thread.")},
    {0, nullptr}};
PyType_Spec spec = {"hcq._native.Replay", sizeof(ReplayObject) - sizeof(Passed), sizeof(Passed),
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
}  // namespace

PyObject* graph_replay(PyObject* self, PyObject*) {
  GraphState* g = graph_usable(self);
  if (!g) return nullptr;
  if (!g->sealed) return PyErr_Format(PyExc_RuntimeError, "these commands are not sealed");
  if (!devices_ready(g)) return nullptr;
  uint64_t session = recording(), began = session ? now_ns() : 0, line = line_bits();
  std::vector<Part> parts;
  Ref replay;
  // Python may run meanwhile, in finalizers and signal handlers, and change or replay this graph: then once more.
  for (uint64_t seen = 0;;) {
    seen = g->changes;
    if (!gather(g, &parts)) return nullptr;
    if (!replay) replay = Ref(Replay_Type->tp_alloc(Replay_Type, static_cast<Py_ssize_t>(parts.size())));
    bool reserved = replay && reserve_all(g, parts);
    if (reserved && seen == g->changes) break;
    if (reserved) unlock_all(g);
    forget(&parts);
    if (!reserved) return nullptr;
  }
  ReplayObject* r = cast(replay.get());
  r->generation = g_generation;
  r->graph = Py_NewRef(self);
  write_parts(g, parts, line, r->passed);
  const Queue* first = parts.empty() ? nullptr : parts[0].lane->queue;
  uint64_t record = first ? first->records : 0;
  unlock_all(g);
  for (size_t i = parts.size(); i-- > 0;) begin(parts[i].lane->queue);
  if (__builtin_expect(session != 0, 0) && first) {
    Record s{};
    s.kind = RecordKind::submit;
    s.flags = kRecordLabelled;
    s.start = began;
    s.end = now_ns();
    s.submit = record | line;
    s.what = first->id;
    s.extra = record_label("replay of a graph");
    record_host(session, s);
  }
  run_retired();
  if (watching() && !tell_replayed(self, parts, r)) return nullptr;
  return replay.release();
}

int init_replay(PyObject* module) {
  Replay_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Replay_Type ? PyModule_AddType(module, Replay_Type) : -1;
}

}  // namespace hcq
