// _native.Signal: the synchronous half of hcq.HCQSignal (hcq.queues.signal adds awaiting).
#include <cstring>

#include "core/file_copy.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "memory/memory.hpp"
#include "python/common.hpp"
#include "python/watch.hpp"

namespace hcq {

PyTypeObject* Signal_Type;

Signal* signal_of(PyObject* object) {
  if (!PyObject_TypeCheck(object, Signal_Type)) {
    PyErr_Format(PyExc_TypeError, "a signal must be an HCQSignal, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  Signal* s = reinterpret_cast<SignalObject*>(object)->signal;
  if (__builtin_expect(s->generation != g_generation, 0)) {
    raise_forked(s->generation, "signal #" + std::to_string(s->id));
    return nullptr;
  }
  return s;
}

PyObject* signal_object(Signal* signal) {
  auto* self = reinterpret_cast<SignalObject*>(Signal_Type->tp_alloc(Signal_Type, 0));
  if (!self) return nullptr;
  signal->refs.fetch_add(1, std::memory_order_relaxed);  // whoever calls holds one
  self->signal = signal;
  return reinterpret_cast<PyObject*>(self);
}

namespace {
// Where a caller's memory is: an object with `_buf` (a Buffer), one with va_addr and size, or a writable buffer.
SignalMemory* placed(PyObject* memory, PyObject** owner) {
  Ref handle(PyObject_HasAttrString(memory, "_buf") ? PyObject_GetAttrString(memory, "_buf") : nullptr);
  if (!handle) {
    Py_INCREF(memory);
    handle = Ref(memory);
  }
  uint64_t address = 0, size = 0;
  if (PyObject_HasAttrString(handle.get(), "va_addr")) {
    Ref a(PyObject_GetAttrString(handle.get(), "va_addr")), n(PyObject_GetAttrString(handle.get(), "size"));
    if (!a || !n || !parse_u64(a.get(), &address, "va_addr") || !parse_u64(n.get(), &size, "size")) return nullptr;
    Ref readonly(PyObject_HasAttrString(handle.get(), "readonly") ? PyObject_GetAttrString(handle.get(), "readonly")
                                                                  : Py_NewRef(Py_False));
    if (!readonly) return nullptr;
    if (is_file_address(address) || PyObject_IsTrue(readonly.get())) {
      PyErr_SetString(PyExc_ValueError, "memory of a signal must be writable memory: a host or shm: buffer");
      return nullptr;
    }
    // The memory too: the buffer may be deallocated.
    Ref kept(memory_keep(memory));
    if (!kept || !(*owner = PyTuple_Pack(3, memory, handle.get(), kept.get()))) return nullptr;
  } else {
    Ref view(PyMemoryView_FromObject(memory));  // keeps the exporter alive and its memory in place
    if (!view) return nullptr;
    Py_buffer* b = PyMemoryView_GET_BUFFER(view.get());
    if (b->readonly || !PyBuffer_IsContiguous(b, 'C')) {
      PyErr_SetString(PyExc_ValueError, "memory of a signal must be writable and contiguous");
      return nullptr;
    }
    address = reinterpret_cast<uint64_t>(b->buf);
    size = static_cast<uint64_t>(b->len);
    *owner = view.release();
  }
  if (size < 64 || address % 8) {
    Py_CLEAR(*owner);
    PyErr_Format(PyExc_ValueError,
                 "memory of a signal must be 64 bytes or more, aligned to 8; got %llu bytes at alignment %llu",
                 static_cast<unsigned long long>(size), static_cast<unsigned long long>(address & (~address + 1)));
    return nullptr;
  }
  return reinterpret_cast<SignalMemory*>(address);
}

PyObject* signal_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"value", "memory", nullptr};
  PyObject *value = nullptr, *memory = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO", const_cast<char**>(names), &value, &memory)) return nullptr;
  uint64_t start = 0;
  if (value && !parse_u64(value, &start, "the value of a signal")) return nullptr;
  PyObject* owner = nullptr;
  SignalMemory* slot = nullptr;
  if (memory && memory != Py_None && !(slot = placed(memory, &owner))) return nullptr;
  auto* self = reinterpret_cast<SignalObject*>(type->tp_alloc(type, 0));
  if (!self) {
    Py_XDECREF(owner);
    return nullptr;
  }
  try {
    self->signal = signal_create(start, slot, owner);
  } catch (const std::bad_alloc&) {
    Py_XDECREF(owner);
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void signal_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<SignalObject*>(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (Signal* s = self->signal; s && s->generation == g_generation) {
    signal_release(s);
    run_retired();
  }
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* get_value(PyObject* self, void*) {
  Signal* s = signal_of(self);
  // acquire: what was written before the value was set is seen by the reader
  if (!s) return nullptr;
  auto value = static_cast<unsigned long long>(s->memory->value.load(std::memory_order_acquire));
  if (watching() && tell("read_signal", "(OK)", self, value) == Told::failed) return nullptr;
  return PyLong_FromUnsignedLongLong(value);
}

int set_value(PyObject* self, PyObject* value, void*) {
  Signal* s = signal_of(self);
  if (!s) return -1;
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "the value of a signal can't be deleted");
    return -1;
  }
  uint64_t v;
  if (!parse_u64(value, &v, "the value of a signal")) return -1;
  if (watching() && tell("set_signal", "(OK)", self, static_cast<unsigned long long>(v)) == Told::failed) return -1;
  s->host_sets.fetch_add(1, std::memory_order_relaxed);  // before the value, which is stored with release
  signal_set(*s->memory, v);
  return 0;
}

PyObject* get_timestamp(PyObject* self, void*) {
  Signal* s = signal_of(self);
  if (!s) return nullptr;
  // Kept: finalizers that run while the interpreter ends may look at time-stamps too, and can't import any more.
  static PyObject* decimal_type = nullptr;  // under the GIL
  if (!decimal_type) {
    Ref module(PyImport_ImportModule("decimal"));
    decimal_type = module ? PyObject_GetAttrString(module.get(), "Decimal") : nullptr;
    if (!decimal_type) return nullptr;
  }
  uint64_t ns = s->memory->timestamp.load(std::memory_order_acquire);
  Ref decimal(PyObject_CallFunction(decimal_type, "K", static_cast<unsigned long long>(ns)));
  return decimal ? PyObject_CallMethod(decimal.get(), "scaleb", "i", -3) : nullptr;
}

PyObject* get_address(PyObject* self, void*) {
  Signal* s = signal_of(self);
  return s ? PyLong_FromUnsignedLongLong(reinterpret_cast<uint64_t>(s->memory)) : nullptr;
}

// Who is to set a signal, in words. Queues of drivers in Python are not known here: hcq.queues.faults names them.
std::string describe_setter(PyObject* object, const Signal* s) {
  if (s->setter.load(std::memory_order_relaxed)) return describe_setters(s);
  Ref module(PyImport_ImportModule("hcq.queues.faults"));
  Ref text(module ? PyObject_CallMethod(module.get(), "setters", "O", object) : nullptr);
  const char* words = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!words) PyErr_Clear();
  return words && *words ? words : describe_setters(s);
}

PyObject* wait_ended(PyObject* self, uint64_t wanted) {
  if (watching() && tell("waited", "(OK)", self, static_cast<unsigned long long>(wanted)) == Told::failed)
    return nullptr;
  Py_RETURN_NONE;
}

PyObject* wait(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Signal* s = signal_of(self);
  if (!s) return nullptr;
  PyObject *value = nullptr, *timeout = nullptr;
  if (count > 2) return PyErr_Format(PyExc_TypeError, "wait takes a value and a timeout, got %zd arguments", count);
  if (count > 0) value = args[0];
  if (count > 1) timeout = args[1];
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "value") == 0 && !value)
      value = args[count + i];
    else if (PyUnicode_CompareWithASCIIString(name, "timeout") == 0 && !timeout)
      timeout = args[count + i];
    else
      return PyErr_Format(PyExc_TypeError, "wait got an unexpected keyword argument '%U'", name);
  }
  if (!value) return PyErr_Format(PyExc_TypeError, "wait needs the value to wait for");
  uint64_t wanted, ms = 10000;
  if (!parse_u64(value, &wanted, "the value to wait for")) return nullptr;
  if (watching() && tell("wait", "(OK)", self, static_cast<unsigned long long>(wanted)) == Told::failed) return nullptr;
  if (signal_reached(*s->memory, wanted) == Reached::yes) return wait_ended(self, wanted);
  HostSpan span(RecordKind::host_wait, s->id, wanted);
  if (timeout && timeout != Py_None) {
    double t = PyFloat_AsDouble(timeout);
    if (t == -1.0 && PyErr_Occurred()) return nullptr;
    if (!(t >= 0)) return PyErr_Format(PyExc_ValueError, "timeout is in milliseconds, 0 or more, got %S", timeout);
    ms = t > 1e15 ? UINT64_MAX : static_cast<uint64_t>(t);
  }
  Wait w{s->memory, wanted};
  w.setter = s->setter.load(std::memory_order_relaxed);
  uint64_t deadline = deadline_after_ms(ms);
  Py_INCREF(self);  // another thread may drop the last reference while we sleep
  Waited waited = wait_until(w, deadline);
  PyObject* result = nullptr;
  if (waited == Waited::reached) {
    result = wait_ended(self, wanted);
  } else if (waited == Waited::failed) {
    raise_fault(s->memory->error.load(std::memory_order_acquire));
  } else if (waited == Waited::timeout) {
    raise("SignalTimeout", "signal #" + std::to_string(s->id) + ": waited " + std::to_string(ms) + " ms for value " +
                               std::to_string(wanted) + ", saw " +
                               std::to_string(s->memory->value.load(std::memory_order_acquire)) + "; " +
                               describe_setter(self, s));
  }
  Py_DECREF(self);
  return result;
}

PyObject* signal_repr(PyObject* object) {
  auto* self = reinterpret_cast<SignalObject*>(object);
  if (self->signal->generation != g_generation)
    return PyUnicode_FromFormat("<%s inherited through fork>", Py_TYPE(object)->tp_name);
  return PyUnicode_FromFormat("<%s #%llu value=%llu>", Py_TYPE(object)->tp_name,
                              static_cast<unsigned long long>(self->signal->id),
                              static_cast<unsigned long long>(self->signal->memory->value.load()));
}

PyMethodDef methods[] = {
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wait)), METH_FASTCALL | METH_KEYWORDS,
     "wait(value, timeout=10000)\n--\n\n"
     "Return when the signal's value is at least `value` (compared unsigned). Blocks, at most `timeout` milliseconds.\n"
     "The thread may run queued commands itself while it waits. Raises SignalTimeout past the deadline, DeviceLost "
     "when\n"
     "the command that was to set the value failed. Control-C ends the wait. Any thread."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {{"value", get_value, set_value,
                         "The value, 64 bits, unsigned. Setting it wakes whoever waits. Any thread.", nullptr},
                        {"timestamp", get_timestamp, nullptr,
                         "Decimal microseconds of the last time-stamp command, on time.perf_counter_ns.", nullptr},
                        {"value_addr", get_address, nullptr, "Address of the signal's 64 bytes.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(SignalObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(signal_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(signal_dealloc)},
                       {Py_tp_repr, reinterpret_cast<void*>(signal_repr)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getset},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("A 64-byte signal; see hcq.HCQSignal.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.Signal", sizeof(SignalObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
}  // namespace

int init_signal(PyObject* module) {
  Signal_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Signal_Type ? PyModule_AddType(module, Signal_Type) : -1;
}

}  // namespace hcq
