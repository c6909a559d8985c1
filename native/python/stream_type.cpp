// _native.Stream: an ordered lane of launches and copies on a device, with a queue and a timeline of its own.
#include "core/interface.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/common.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq {

PyTypeObject* Stream_Type;

namespace {
void stream_dealloc(PyObject* object) {
  auto* s = reinterpret_cast<StreamObject*>(object);
  if (s->weakrefs) PyObject_ClearWeakRefs(object);
  if (s->device && s->device->generation == g_generation) {
    // Its queue goes on to the end of what it holds; the device forgets it when that is over.
    struct Rest {
      Device* device;
      Queue* queue;
      Timeline* timeline;
    };
    auto* rest = new Rest{s->device, s->queue, s->timeline};
    retire(
        [](void* p) {
          auto* r = static_cast<Rest*>(p);
          r->device->make_lock.lock();
          auto& all = r->device->streams;
          bool listed = false;
          for (size_t i = 0; i < all.size(); ++i) {
            if (all[i] != r->queue) continue;
            all[i] = all.back();
            all.pop_back();
            listed = true;
            break;
          }
          r->device->make_lock.unlock();
          if (listed) queue_close(r->queue);
          queue_release(r->queue);
          signal_release(r->timeline->signal);
          delete r->timeline;
          device_release(r->device);
          delete r;
        },
        rest);
  }
  Py_XDECREF(s->device_object);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

bool stream_usable(StreamObject* s) { return device_usable(s->device); }

// The same of streams and devices whose queues are Python's, as a tuple; null without an error for other objects.
PyObject* point_in_python(PyObject* other) {
  Ref position(PyObject_GetAttrString(other, "position"));  // of a stream; a device's is a method
  if (position && PyTuple_Check(position.get())) return position.release();
  PyErr_Clear();
  Ref signal(PyObject_GetAttrString(other, "timeline_signal"));
  Ref next(signal ? PyObject_GetAttrString(other, "timeline_value") : nullptr), one(PyLong_FromLong(1));
  Ref value(next && one ? PyNumber_Subtract(next.get(), one.get()) : nullptr);
  if (value) return PyTuple_Pack(2, signal.get(), value.get());
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return nullptr;
}

// (signal, value) that stands for everything queued on `other` until now.
bool point_of(PyObject* other, Signal** signal, uint64_t* value) {
  if (PyObject_TypeCheck(other, Stream_Type)) {
    auto* o = reinterpret_cast<StreamObject*>(other);
    if (o->device->generation != g_generation) {
      raise_forked(o->device->generation, "a stream of " + o->device->name);
      return false;
    }
    *signal = o->timeline->signal;
    *value = o->timeline->next.load(std::memory_order_acquire) - 1;
    return true;
  }
  if (PyObject_TypeCheck(other, Device_Type)) {
    Device* d = device_of(other);
    if (!d) return false;
    *signal = d->timeline.signal;
    *value = d->timeline.next.load(std::memory_order_acquire) - 1;
    return true;
  }
  PyObject* pair_signal;
  if (PyTuple_Check(other) && PyTuple_GET_SIZE(other) == 2) {
    pair_signal = PyTuple_GET_ITEM(other, 0);
    *signal = signal_of(pair_signal);
    return *signal && parse_u64(PyTuple_GET_ITEM(other, 1), value, "the value of a signal");
  }
  if (Ref pair(point_in_python(other)); pair) return point_of(pair.get(), signal, value);
  if (PyErr_Occurred()) return false;
  PyErr_Format(PyExc_TypeError, "wait takes a stream, a device of command queues or (signal, value), not %.100s",
               Py_TYPE(other)->tp_name);
  return false;
}

PyObject* stream_wait(PyObject* self, PyObject* other) {
  auto* s = reinterpret_cast<StreamObject*>(self);
  Signal* signal;
  uint64_t value;
  if (!stream_usable(s) || !point_of(other, &signal, &value)) return nullptr;
  uint64_t line = line_bits();
  signal->refs.fetch_add(1, std::memory_order_relaxed);  // a device may get another timeline while we wait for room
  if (!reserve(s->queue, 1, 1, nullptr)) {
    signal_release(signal);
    return nullptr;
  }
  auto* p = reinterpret_cast<SignalPacket*>(queue_write(s->queue, 1));
  p->header = {PacketType::wait, 1, kEndOfSubmit, ++s->queue->records | line};
  p->signal = signal;
  p->value = value;
  queue_publish(s->queue);
  s->queue->produce.unlock();
  Ref told(watching() ? signal_object(signal) : nullptr);
  signal_release(signal);
  begin(s->queue);
  if (told && tell("stream_wait", "(OOK)", self, told.get(), static_cast<unsigned long long>(value)) == Told::failed)
    return nullptr;
  Py_INCREF(self);
  return self;
}

PyObject* stream_position(PyObject* self, void*);
PyObject* stream_synchronize_now(PyObject* self);

PyObject* stream_synchronize(PyObject* self, PyObject*) {
  if (!watching()) return stream_synchronize_now(self);
  Ref position(stream_position(self, nullptr));
  if (!position || tell("wait", "O", position.get()) == Told::failed) return nullptr;
  Ref result(stream_synchronize_now(self));
  if (!result || tell("waited", "O", position.get()) == Told::failed) return nullptr;
  return result.release();
}

PyObject* stream_synchronize_now(PyObject* self) {
  auto* s = reinterpret_cast<StreamObject*>(self);
  if (!stream_usable(s)) return nullptr;
  uint64_t ms = config_number("TIMEOUT_MS");
  if (PyErr_Occurred()) return nullptr;
  Waited waited = wait_commands(s->queue, s->queue->tail.load(std::memory_order_acquire), deadline_after_ms(ms));
  if (waited == Waited::interrupted) return nullptr;
  if (waited == Waited::timeout)
    return raise("SignalTimeout",
                 "stream did not finish within " + std::to_string(ms) + " ms: " + describe_queue(s->queue));
  run_retired();
  if (uint64_t error = s->device->fault.load(std::memory_order_acquire)) return raise_fault(error);
  if (uint64_t error = s->device->reported.exchange(0, std::memory_order_acq_rel)) return raise_fault(error);
  Py_RETURN_NONE;
}

PyObject* stream_device(PyObject* self, void*) {
  PyObject* d = reinterpret_cast<StreamObject*>(self)->device_object;
  Py_INCREF(d);
  return d;
}

PyMethodDef stream_methods[] = {
    {"wait", stream_wait, METH_O,
     "wait(other)\n--\n\nWhat is queued on this stream from now on starts after everything queued so far on `other`, "
     "a\n"
     "stream or a device. Returns the stream; doesn't block."},
    {"synchronize", stream_synchronize, METH_NOARGS,
     "synchronize()\n--\n\nReturn when all that was queued on this stream has finished. Raises what failed."},
    {nullptr, nullptr, 0, nullptr}};
PyObject* stream_position(PyObject* self, void*) {
  auto* s = reinterpret_cast<StreamObject*>(self);
  if (s->device->generation != g_generation)
    return raise_forked(s->device->generation, "a stream of " + s->device->name);
  return Py_BuildValue("(NK)", signal_object(s->timeline->signal),
                       static_cast<unsigned long long>(s->timeline->next.load(std::memory_order_acquire) - 1));
}

PyObject* stream_repr(PyObject* self) {
  auto* s = reinterpret_cast<StreamObject*>(self);
  if (s->device->generation != g_generation) return PyUnicode_FromString("<Stream inherited through fork>");
  uint64_t given = s->timeline->next.load(std::memory_order_relaxed) - 1;
  uint64_t over = s->timeline->signal->memory->value.load(std::memory_order_acquire);
  return PyUnicode_FromFormat("<Stream of %s: %llu given, %llu over>", s->device->name.c_str(),
                              static_cast<unsigned long long>(given), static_cast<unsigned long long>(over));
}

PyGetSetDef stream_getset[] = {
    {"device", stream_device, nullptr, "The device.", nullptr},
    {"position", stream_position, nullptr,
     "(signal, value), reached once all work given to the stream until now is over.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef stream_members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(StreamObject, weakrefs), READONLY, nullptr},
                                {nullptr, 0, 0, 0, nullptr}};
PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(stream_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(stream_repr)},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_tp_members, stream_members},
    {Py_tp_doc,
     const_cast<char*>("An ordered lane of launches and copies on a device, beside the device's own order.")},
    {0, nullptr}};
PyType_Spec stream_spec = {"hcq._native.Stream", sizeof(StreamObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, stream_slots};

}  // namespace

PyObject* stream_new(PyObject* self, PyObject*) {
  Device* d = device_of(self);
  if (!d || !device_usable(d)) return nullptr;
  auto* s = reinterpret_cast<StreamObject*>(Stream_Type->tp_alloc(Stream_Type, 0));
  if (!s) return nullptr;
  Timeline* t = nullptr;
  try {
    t = new Timeline;
    t->signal = signal_create(0);
    s->queue = device_stream(d);
  } catch (const std::bad_alloc&) {
    if (t && t->signal) signal_release(t->signal);
    delete t;
    Py_DECREF(s);
    return PyErr_NoMemory();
  }
  s->timeline = t;
  s->device = d;
  device_retain(d);
  Py_INCREF(self);
  s->device_object = self;
  return reinterpret_cast<PyObject*>(s);
}

int init_stream(PyObject* module) {
  Stream_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &stream_spec, nullptr));
  return Stream_Type ? PyModule_AddType(module, Stream_Type) : -1;
}

}  // namespace hcq
