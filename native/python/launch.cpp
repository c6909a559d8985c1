// Launching: one call that checks arguments and writes one packet (launch.hpp).
#include "python/launch.hpp"

#include <cstring>
#include <new>

#include "core/interface.hpp"
#include "core/record_launch.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "memory/memory.hpp"
#include "python/structures.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
PyObject *k_global_size, *k_local_size, *k_vals, *k_wait, *k_stream;  // interned

// Where a launch goes: the device's own order, or a stream's.
bool choose_lane(DeviceObject* device, PyObject* stream, Queue** queue, Timeline** timeline) {
  Device* d = device->device;
  if (!stream || stream == Py_None) {
    *queue = device_queue(d, QueueKind::compute);
    *timeline = &d->timeline;
    return true;
  }
  if (!PyObject_TypeCheck(stream, Stream_Type) || reinterpret_cast<StreamObject*>(stream)->device != d) {
    raise("LaunchError", "stream must be one that " + d->name + " gave (dev.stream())");
    return false;
  }
  *queue = reinterpret_cast<StreamObject*>(stream)->queue;
  *timeline = reinterpret_cast<StreamObject*>(stream)->timeline;
  return true;
}

// Ends a launch that waits: returns seconds on the device, or nullptr with the failure set.
PyObject* finish_wait(Device* d, Queue* q, uint64_t position, Timing* timing, bool seconds) {
  HostSpan span(RecordKind::host_wait);
  step(q, true, now_ns() + 20000);
  bool finished = q->done.value.load(std::memory_order_acquire) >= position;
  if (!finished) {
    uint64_t ms = config_number("TIMEOUT_MS");
    Waited waited = Waited::interrupted;
    if (!PyErr_Occurred()) waited = wait_commands(q, position, deadline_after_ms(ms));
    if (waited == Waited::failed) raise_fault(d->fault.load(std::memory_order_acquire));
    if (waited == Waited::timeout)
      raise("SignalTimeout", "the launch did not finish within " + std::to_string(ms) + " ms: " + describe_queue(q));
    finished = waited == Waited::reached;
  }
  double time = 0;
  bool failed = false;
  if (timing) {
    if (finished) {
      time = static_cast<double>(timing->end - timing->start) * 1e-9;
      failed = timing->end == 0;
    }
    timing->release();
  }
  if (!finished) return nullptr;
  run_retired();
  if (uint64_t error = d->fault.load(std::memory_order_acquire)) return raise_fault(error);
  if (failed)
    if (uint64_t error = d->reported.exchange(0, std::memory_order_acq_rel)) return raise_fault(error);
  if (!seconds) Py_RETURN_NONE;
  return PyFloat_FromDouble(time);
}

// The signal that a launch sets, as Python knows it; a new reference.
PyObject* timeline_object(DeviceObject* device, Timeline* t) {
  return t == &device->device->timeline ? Py_NewRef(device->timeline_signal) : signal_object(t->signal);
}

bool tell_launched(const Launch& launch, Timeline* t, uint64_t value) {
  PyObject* w = launch.watched;
  return tell("launched", "(OOOOOONK)", PyTuple_GET_ITEM(w, 0), PyTuple_GET_ITEM(w, 1), PyTuple_GET_ITEM(w, 2),
              PyTuple_GET_ITEM(w, 3), PyTuple_GET_ITEM(w, 4), PyTuple_GET_ITEM(w, 5), timeline_object(launch.device, t),
              static_cast<unsigned long long>(value)) != Told::failed;
}
}  // namespace

bool parse_keywords(PyObject* const* values, PyObject* names, Keywords* out) {
  for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(names); i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    // Names in source code are interned: comparing pointers is enough, but for names made at run time.
    if (name == k_global_size)
      out->global_size = values[i];
    else if (name == k_local_size)
      out->local_size = values[i];
    else if (name == k_wait)
      out->wait = values[i];
    else if (name == k_vals)
      out->vals = values[i];
    else if (name == k_stream)
      out->stream = values[i];
    else if (PyUnicode_Compare(name, k_global_size) == 0)
      out->global_size = values[i];
    else if (PyUnicode_Compare(name, k_local_size) == 0)
      out->local_size = values[i];
    else if (PyUnicode_Compare(name, k_wait) == 0)
      out->wait = values[i];
    else if (PyUnicode_Compare(name, k_vals) == 0)
      out->vals = values[i];
    else if (PyUnicode_Compare(name, k_stream) == 0)
      out->stream = values[i];
    else {
      PyErr_Format(PyExc_TypeError,
                   "a launch takes global_size, local_size, vals, wait and stream, not the keyword argument '%U'",
                   name);
      return false;
    }
  }
  return true;
}

PyObject* launch_given(const Program& program, PyObject* const* args, Py_ssize_t count, const Keywords& k) {
  Ref bufs(PyTuple_New(count));
  for (Py_ssize_t i = 0; bufs && i < count; ++i) PyTuple_SET_ITEM(bufs.get(), i, Py_NewRef(args[i]));
  // Copies of lists: the caller may change them later.
  Ref vals(k.vals && k.vals != Py_None ? PySequence_Tuple(k.vals) : PyTuple_New(0));
  Ref groups(k.global_size && k.global_size != Py_None ? PySequence_Tuple(k.global_size) : Py_NewRef(Py_None));
  Ref items(k.local_size && k.local_size != Py_None ? PySequence_Tuple(k.local_size) : Py_NewRef(Py_None));
  if (!bufs || !vals || !groups || !items) return nullptr;
  vals = kept_values(program, static_cast<size_t>(count), std::move(vals));
  if (!vals) return nullptr;
  return PyTuple_Pack(4, bufs.get(), vals.get(), groups.get(), items.get());
}

namespace {
// `session`: that records, or 0. Two of these, so that a launch which nobody records asks for that once.
template <bool recorded>
PyObject* write_packet(const Launch& launch, PyObject* stream, bool wait, bool hold, uint64_t session) {
  Device* d = launch.device->device;
  Queue* q;
  Timeline* t;
  if (!choose_lane(launch.device, stream, &q, &t)) return nullptr;
  if (__builtin_expect(launch.device->lock_owner != 0, 0) && !timeline_lock_free(launch.device)) return nullptr;
  if (__builtin_expect(d->injections.load(std::memory_order_relaxed) != 0, 0)) {
    if (uint64_t error = injected(d, InjectWhat::submit, launch.program->name.c_str())) {
      device_lose(d, error);
      return raise_fault(error);
    }
  }
  Timing* timing = wait ? new (std::nothrow) Timing : nullptr;
  if (wait && !timing) return PyErr_NoMemory();
  // Before any lock: looking for the line may run finalizers.
  uint64_t line = recorded || __builtin_expect(launch.watched != nullptr, 0) ? user_line() << kLineShift : 0;
  bool more = recorded && record_launch(session, q);
  uint32_t units = 1 + (timing ? 1 : 0) + (launch.arguments_size + kUnit - 1) / kUnit;
  if (!reserve(q, units, units, t)) {
    delete timing;
    return nullptr;
  }
  auto* p = reinterpret_cast<ExecPacket*>(queue_write(q, units));
  uint64_t value = t->next.load(std::memory_order_relaxed);  // under the timeline's lock, as the next line
  t->next.store(value + 1, std::memory_order_relaxed);
  p->header = {PacketType::exec, static_cast<uint16_t>(units),
               kEndOfSubmit | kWaitPrevious | kCompletes | (timing ? static_cast<uint32_t>(kTimed) : 0u),
               ++q->records | line};
  p->program = launch.program;
  p->signal = t->signal;
  p->value = value;
  std::memcpy(p->groups, launch.groups, sizeof p->groups);
  std::memcpy(p->items, launch.items, sizeof p->items);
  if (timing) reinterpret_cast<ExecExtra*>(p + 1)->timing = timing;
  std::memcpy(inline_arguments(p), launch.arguments, launch.arguments_size);
  if (t->signal->setter.load(std::memory_order_relaxed) != q) t->signal->setter.store(q, std::memory_order_relaxed);
  queue_publish(q);
  uint64_t position = q->write_position, record = q->records;
  q->produce.unlock();
  t->lock.unlock();
  if (recorded && more) record_launched(record);
  if (__builtin_expect(launch.watched != nullptr, 0)) {
    begin(q);
    if (!tell_launched(launch, t, value)) {
      if (timing) timing->release();
      return nullptr;
    }
    Ref result(wait || hold ? finish_wait(d, q, position, timing, wait) : Py_NewRef(Py_None));
    if (!result || !(wait || hold)) return result.release();
    return tell("waited", "(NK)", timeline_object(launch.device, t), static_cast<unsigned long long>(value)) ==
                   Told::failed
               ? nullptr
               : result.release();
  }
  if (wait || hold) return finish_wait(d, q, position, timing, wait);
  begin(q);
  run_retired();
  Py_RETURN_NONE;
}
}  // namespace

PyObject* enqueue(const Launch& launch, PyObject* stream, bool wait, bool hold) {
  uint64_t session = recording();
  return __builtin_expect(session != 0, 0) ? write_packet<true>(launch, stream, wait, hold, session)
                                           : write_packet<false>(launch, stream, wait, hold, 0);
}

PyObject* enqueue_watched(PyObject* program, PyObject* given, Launch launch, PyObject* stream, bool wait, bool hold,
                          bool empty) {
  Ref watched(Py_BuildValue("(OOOOOO)", reinterpret_cast<PyObject*>(launch.device), program, PyTuple_GET_ITEM(given, 0),
                            PyTuple_GET_ITEM(given, 1), PyTuple_GET_ITEM(given, 2), PyTuple_GET_ITEM(given, 3)));
  if (!watched) return nullptr;
  PyObject* w = watched.get();
  Told told =
      tell("launch", "(OOOOOOOO)", PyTuple_GET_ITEM(w, 0), program, PyTuple_GET_ITEM(w, 2), PyTuple_GET_ITEM(w, 3),
           PyTuple_GET_ITEM(w, 4), PyTuple_GET_ITEM(w, 5), stream ? stream : Py_None, wait ? Py_True : Py_False);
  if (told == Told::failed) return nullptr;
  if (told == Told::taken) Py_RETURN_NONE;
  if (empty) return nothing(wait);
  launch.watched = w;
  return enqueue(launch, stream, wait, hold);
}

// A launch over arrays whose wait ended early may still run: what it works on lives until the queue has passed it.
void keep_until_passed(PyObject* object) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (object) retire_object(object);
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

PyObject* kept_arguments(PyObject* const* args, Py_ssize_t count, Arguments* arguments) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* all = PyTuple_New(count + 1);
  for (Py_ssize_t i = 0; all && i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(all, i, args[i]);
  }
  // Without memory for the tuple the arguments are leaked rather than used after their end.
  for (Py_ssize_t i = 0; !all && i < count; ++i) Py_INCREF(args[i]);
  PyObject* copies = arguments->copies.release();
  if (all) PyTuple_SET_ITEM(all, count, copies ? copies : Py_NewRef(Py_None));
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return all;
}

PyObject* nothing(bool wait) {
  if (wait) return PyFloat_FromDouble(0.0);
  Py_RETURN_NONE;
}

bool program_usable(ProgramObject* self) {
  if (__builtin_expect(!self->program, 0)) {
    PyErr_SetString(PyExc_RuntimeError, "this program was not initialised");
    return false;
  }
  return device_usable(self->device->device);
}

int truth(PyObject* o) {
  if (!o || o == Py_False || o == Py_None) return 0;
  return o == Py_True ? 1 : PyObject_IsTrue(o);
}

int init_launch(PyObject*) {
  k_global_size = PyUnicode_InternFromString("global_size");
  k_local_size = PyUnicode_InternFromString("local_size");
  k_vals = PyUnicode_InternFromString("vals");
  k_wait = PyUnicode_InternFromString("wait");
  k_stream = PyUnicode_InternFromString("stream");
  return k_global_size && k_local_size && k_vals && k_wait && k_stream ? 0 : -1;
}

}  // namespace hcq
