// _native.CommandDevice: a device of native command queues as Python sees it. Streams have a file of their own.
#include "core/interface.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/common.hpp"
#include "python/device_wait.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq {

PyTypeObject* Device_Type;

bool device_usable(Device* d) {
  if (__builtin_expect(d->generation != g_generation, 0)) {
    raise_forked(d->generation, d->name);
    return false;
  }
  if (__builtin_expect(d->closed.load(std::memory_order_relaxed), 0)) {
    PyErr_Format(PyExc_RuntimeError, "%s is closed: Device[\"%s\"] opens it anew", d->name.c_str(), d->name.c_str());
    return false;
  }
  if (uint64_t error = d->fault.load(std::memory_order_acquire); __builtin_expect(error != 0, 0)) {
    raise_fault(error);
    return false;
  }
  return true;
}

Device* device_of(PyObject* object) {
  if (!PyObject_TypeCheck(object, Device_Type)) {
    PyErr_Format(PyExc_TypeError, "expected a device of native command queues, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  Device* d = reinterpret_cast<DeviceObject*>(object)->device;
  if (!d) {
    PyErr_SetString(PyExc_RuntimeError, "this device was never opened");
    return nullptr;
  }
  if (__builtin_expect(d->generation != g_generation, 0)) {
    raise_forked(d->generation, d->name);
    return nullptr;
  }
  return d;
}

namespace {
DeviceObject* cast(PyObject* o) { return reinterpret_cast<DeviceObject*>(o); }

PyObject* open(PyObject* self, PyObject* args) {
  const char* name;
  PyObject* signal;
  unsigned long long limits[7];
  if (!PyArg_ParseTuple(args, "sO(KKK)(KKK)K", &name, &signal, &limits[0], &limits[1], &limits[2], &limits[3],
                        &limits[4], &limits[5], &limits[6]))
    return nullptr;
  Signal* s = signal_of(signal);
  if (!s) return nullptr;
  if (cast(self)->device) return PyErr_Format(PyExc_RuntimeError, "%s is open already", name);
  Device* d = device_create(name);
  for (int i = 0; i < 3; ++i) {
    d->limits.groups[i] = limits[i];
    d->limits.items[i] = limits[3 + i];
  }
  d->limits.group_items = limits[6];
  d->timeline.signal = s;
  Py_INCREF(signal);
  cast(self)->timeline_signal = signal;
  cast(self)->device = d;
  Py_RETURN_NONE;
}

PyObject* next_timeline(PyObject* self, PyObject*) {
  Device* d = device_of(self);
  if (!d || !device_usable(d) || !timeline_lock_free(cast(self))) return nullptr;
  // relaxed: uniqueness is all that counts; order comes from the queue
  return PyLong_FromUnsignedLongLong(d->timeline.next.fetch_add(1, std::memory_order_relaxed));
}

PyObject* close(PyObject* self, PyObject*) {
  // Its queues stay in the list of queues until they and their streams are gone: one of a lost device may still be at a
  // command, and memory that this uses must not be handed out.
  Device* d = device_of(self);
  if (!d) return nullptr;
  d->closed.store(true, std::memory_order_relaxed);
  run_retired();
  Py_RETURN_NONE;
}

PyObject* lose(PyObject* self, PyObject* args) {
  const char *command, *message;
  unsigned long long token;
  if (!PyArg_ParseTuple(args, "ssK", &command, &message, &token)) return nullptr;
  Device* d = device_of(self);
  if (!d) return nullptr;
  device_lose(d, fault_record(Fault{d->name, command, message, token}));
  Py_RETURN_NONE;
}

// A failure that dropped a submit was told to whoever waited: the next synchronize doesn't tell it again.
PyObject* forget_reported(PyObject* self, PyObject* arg) {
  uint64_t error;
  Device* d = device_of(self);
  if (!d || !parse_u64(arg, &error, "error")) return nullptr;
  d->reported.compare_exchange_strong(error, 0, std::memory_order_acq_rel);
  Py_RETURN_NONE;
}

// Submits `queue` as timeline value `value`. One call, so that no exception of a signal handler comes between the
// submit and the value: either both count or neither does.
PyObject* submit_as(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  Device* d = device_of(self);
  uint64_t value;
  if (!d) return nullptr;
  if (count != 2) return PyErr_Format(PyExc_TypeError, "_submit_as(queue, value)");
  if (!parse_u64(args[1], &value, "value")) return nullptr;
  uint64_t before = submits_of(args[0]);
  d->timeline.next.store(value + 1, std::memory_order_relaxed);
  Ref result(PyObject_CallMethod(args[0], "submit", "O", self));
  if (!result && submits_of(args[0]) == before) d->timeline.next.store(value, std::memory_order_relaxed);
  if (!result) return nullptr;
  Py_RETURN_NONE;
}

std::atomic<uint64_t> g_injection{1};

PyObject* inject(PyObject* self, PyObject* args) {
  const char* what;
  long long nth;
  unsigned long long token;
  double delay;
  if (!PyArg_ParseTuple(args, "sLKd", &what, &nth, &token, &delay)) return nullptr;
  Device* d = device_of(self);
  if (!d) return nullptr;
  Injection i{InjectWhat::exec, nth, token, static_cast<uint64_t>(delay * 1e9), g_injection.fetch_add(1)};
  std::string w = what;
  if (w == "copy")
    i.what = InjectWhat::copy;
  else if (w == "submit")
    i.what = InjectWhat::submit;
  else if (w != "exec")
    return PyErr_Format(PyExc_ValueError, "what must be exec, copy or submit here, not %s", what);
  d->inject_lock.lock();
  d->armed.push_back(i);
  d->injections.fetch_add(1, std::memory_order_relaxed);
  d->inject_lock.unlock();
  return PyLong_FromUnsignedLongLong(i.id);
}

// Disarms; returns whether it had fired.
PyObject* uninject(PyObject* self, PyObject* arg) {
  uint64_t id;
  Device* d = device_of(self);
  if (!d || !parse_u64(arg, &id, "id")) return nullptr;
  bool fired = true;
  d->inject_lock.lock();
  for (size_t i = 0; i < d->armed.size(); ++i) {
    if (d->armed[i].id != id) continue;
    d->armed.erase(d->armed.begin() + static_cast<std::ptrdiff_t>(i));
    d->injections.fetch_sub(1, std::memory_order_relaxed);
    fired = false;
    break;
  }
  d->inject_lock.unlock();
  return PyBool_FromLong(fired);
}

// Whether it is still armed.
PyObject* injected_still(PyObject* self, PyObject* arg) {
  uint64_t id;
  Device* d = device_of(self);
  if (!d || !parse_u64(arg, &id, "id")) return nullptr;
  bool armed = false;
  d->inject_lock.lock();
  for (const Injection& i : d->armed) armed |= i.id == id;
  d->inject_lock.unlock();
  return PyBool_FromLong(armed);
}

PyObject* get_timeline_value(PyObject* self, void*) {
  Device* d = device_of(self);
  return d ? PyLong_FromUnsignedLongLong(d->timeline.next.load(std::memory_order_relaxed)) : nullptr;
}

int set_timeline_value(PyObject* self, PyObject* value, void*) {
  Device* d = device_of(self);
  uint64_t v;
  if (!d || !value || !parse_u64(value, &v, "timeline_value")) return -1;
  if (!timeline_lock_free(cast(self))) return -1;
  d->timeline.next.store(v, std::memory_order_relaxed);
  return 0;
}

PyObject* get_timeline_signal(PyObject* self, void*) {
  if (!device_of(self)) return nullptr;
  PyObject* s = cast(self)->timeline_signal;
  Py_INCREF(s);
  return s;
}

int set_timeline_signal(PyObject* self, PyObject* value, void*) {
  Device* d = device_of(self);
  Signal* s = value ? signal_of(value) : nullptr;
  if (!d || !s) return -1;
  d->timeline.lock.lock();
  d->timeline.signal = s;
  d->timeline.lock.unlock();
  Py_INCREF(value);
  PyObject* old = cast(self)->timeline_signal;
  cast(self)->timeline_signal = value;
  Py_XDECREF(old);  // its memory stays until queued work has passed
  return 0;
}

PyObject* get_fault(PyObject* self, void*) {
  Device* d = device_of(self);
  return d ? PyLong_FromUnsignedLongLong(d->fault.load(std::memory_order_acquire)) : nullptr;
}

PyObject* get_timeline_lock(PyObject* self, void*) { return device_of(self) ? timeline_lock_new(self) : nullptr; }

// --- copies --------------------------------------------------------------------------------------------------------
PyObject* enqueue_copy(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  Device* d = device_of(self);
  if (!d || !device_usable(d) || !timeline_lock_free(cast(self))) return nullptr;
  uint64_t dest, source, bytes;
  if (count < 3 || count > 4) return PyErr_Format(PyExc_TypeError, "enqueue_copy(dest, src, nbytes, stream=None)");
  if (!parse_u64(args[0], &dest, "dest") || !parse_u64(args[1], &source, "src") ||
      !parse_u64(args[2], &bytes, "nbytes"))
    return nullptr;
  if (watching()) {
    Told told = tell("copy", "(OOOOO)", self, args[0], args[1], args[2], count == 4 ? args[3] : Py_None);
    if (told == Told::failed) return nullptr;
    if (told == Told::taken) return PyLong_FromLong(0);
  }
  uint64_t session = recording(), began = session ? now_ns() : 0, line = line_bits();
  Queue* q;
  Timeline* t;
  if (count == 4 && args[3] != Py_None) {
    if (!PyObject_TypeCheck(args[3], Stream_Type) || reinterpret_cast<StreamObject*>(args[3])->device != d)
      return raise("LaunchError", "stream must be a stream of " + d->name);
    q = reinterpret_cast<StreamObject*>(args[3])->queue;
    t = reinterpret_cast<StreamObject*>(args[3])->timeline;
  } else {
    q = device_queue(d, QueueKind::copy);
    t = &d->timeline;
  }
  if (!reserve(q, 1, 1, t)) return nullptr;
  auto* p = reinterpret_cast<CopyPacket*>(queue_write(q, 1));
  uint64_t value = t->next.fetch_add(1, std::memory_order_relaxed);  // under the timeline's lock
  p->header = {PacketType::copy, 1, kEndOfSubmit | kWaitPrevious | kCompletes, ++q->records | line};
  p->destination = dest;
  p->source = source;
  p->bytes = bytes;
  p->signal = t->signal;
  p->value = value;
  p->timing = nullptr;
  t->signal->setter.store(q, std::memory_order_relaxed);
  queue_publish(q);
  uint64_t record = q->records;
  q->produce.unlock();
  t->lock.unlock();
  begin(q);
  if (__builtin_expect(session != 0, 0)) {
    Record r{};
    r.kind = RecordKind::submit;
    r.start = began;
    r.end = now_ns();
    r.submit = record | line;
    r.what = q->id;
    r.extra = 1;
    record_host(session, r);
  }
  run_retired();
  if (watching()) {
    PyObject* signal = t == &d->timeline ? Py_NewRef(cast(self)->timeline_signal) : signal_object(t->signal);
    if (tell("copied", "(OOOONK)", self, args[0], args[1], args[2], signal, static_cast<unsigned long long>(value)) ==
        Told::failed)
      return nullptr;
  }
  return PyLong_FromUnsignedLongLong(value);
}

int device_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cast(self)->timeline_signal);
  return 0;
}

void device_dealloc(PyObject* object) {
  DeviceObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (self->device && self->device->generation == g_generation) {
    Device* d = self->device;
    // What is queued may still run: the record goes when that is over.
    retire([](void* p) { device_release(static_cast<Device*>(p)); }, d);
  }
  Py_XDECREF(self->timeline_signal);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"_open", open, METH_VARARGS,
     "_open(name, timeline_signal, max_groups, max_group_size, max_group_items)\n--\n\nCalled once by the driver."},
    {"synchronize", device_synchronize, METH_NOARGS,
     "synchronize()\n--\n\nReturn when all that was queued has finished; raise what failed (DeviceLost), or "
     "SignalTimeout\n"
     "after HCQ_TIMEOUT_MS, naming the wait that a queue stands at. The calling thread may run short commands itself."},
    {"busy", device_busy, METH_NOARGS, "busy()\n--\n\nWhether anything queued here is unfinished. Never blocks."},
    {"running", device_running, METH_NOARGS,
     "running()\n--\n\nWhether a queue has work and does not stand at a wait. Never blocks."},
    {"next_timeline", next_timeline, METH_NOARGS,
     "next_timeline()\n--\n\nReserve the next timeline value, atomically. Whoever reserves must signal it."},
    {"enqueue_copy", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(enqueue_copy)), METH_FASTCALL,
     "enqueue_copy(dest, src, nbytes, stream=None)\n--\n\nQueue a copy between two addresses after everything queued\n"
     "so far (or on the stream). Returns its timeline value; doesn't wait."},
    {"_stream", stream_new, METH_NOARGS, "_stream()\n--\n\nA new stream."},
    {"_submit_as", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(submit_as)), METH_FASTCALL,
     "_submit_as(queue, value)\n--\n\nSubmit the queue, which sets the timeline to value; under timeline_lock."},
    {"_shut", close, METH_NOARGS, "_shut()\n--\n\nMarks the device closed; the driver has synchronized before."},
    {"_lose", lose, METH_VARARGS, "_lose(command, message, token)\n--\n\nMarks the device lost."},
    {"_forget_reported", forget_reported, METH_O,
     "_forget_reported(error)\n--\n\nThe failure of a dropped submit was told: synchronize doesn't tell it again."},
    {"_inject", inject, METH_VARARGS,
     "_inject(what, nth, token, delay)\n--\n\nArms an injected failure; returns its id."},
    {"_armed", injected_still, METH_O, "_armed(id)\n--\n\nWhether an injected failure has yet to fire."},
    {"_uninject", uninject, METH_O, "_uninject(id)\n--\n\nDisarms it; returns whether it had fired."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {
    {"timeline_value", get_timeline_value, set_timeline_value, "The next value to signal, from 1.", nullptr},
    {"timeline_signal", get_timeline_signal, set_timeline_signal, "The signal of this device's timeline.", nullptr},
    {"timeline_lock", get_timeline_lock, nullptr, "Held by clients that raise timeline_value beside launching threads.",
     nullptr},
    {"_fault", get_fault, nullptr, "The error word of what lost the device; 0 while it is well.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(DeviceObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(device_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(device_traverse)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getset},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("A device of native command queues.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.CommandDevice", sizeof(DeviceObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
}  // namespace

int init_device(PyObject* module) {
  Device_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Device_Type ? PyModule_AddType(module, Device_Type) : -1;
}

}  // namespace hcq
