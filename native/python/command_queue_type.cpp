// _native.CommandQueue: a list of commands, kept as packets, submitted as often as wanted. The CPU and NULL devices'
// compute and copy queues are subclasses that also derive from the contract's Python classes.
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "core/interface.hpp"
#include "core/names.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/arguments.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq {

namespace {
PyTypeObject* CommandQueue_Type;

struct Commands {
  std::vector<uint8_t> packets;    // as they go into a ring
  std::vector<uint32_t> offsets;   // units, one a command
  std::vector<Signal*> setters;    // the signal of each signal command, for helping
  PyObject* held = nullptr;        // list: what command i refers to (signal, program or None)
  uint32_t largest = 1;            // units of the largest packet
  BoundCommands* bound = nullptr;  // after bind()
  Device* bound_device = nullptr;
  std::vector<Patch> patches;  // since the last submit of a bound queue
  uint64_t submits = 0;
};

struct QueueObject {
  PyObject_HEAD Commands* commands;
  uint32_t generation;
  PyObject* weakrefs;
};

QueueObject* cast(PyObject* o) { return reinterpret_cast<QueueObject*>(o); }

Commands* usable(PyObject* self) {
  QueueObject* q = cast(self);
  if (__builtin_expect(q->generation != g_generation, 0)) {
    raise_forked(q->generation, "a command queue");
    return nullptr;
  }
  return q->commands;
}

PyObject* queue_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = cast(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->generation = g_generation;
  self->commands = new (std::nothrow) Commands;
  if (self->commands) self->commands->held = PyList_New(0);
  if (!self->commands || !self->commands->held) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void bound_free(void* p) {
  auto* b = static_cast<BoundCommands*>(p);
  Freeing freeing;
  std::free(b->memory);
  delete b;
}

int queue_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (cast(self)->commands) Py_VISIT(cast(self)->commands->held);
  return 0;
}

int queue_clear(PyObject* self) {
  Commands* c = cast(self)->commands;
  if (!c || !c->held) return 0;
  // Its packets name what goes now: from here on it is an empty queue.
  c->packets.clear();
  c->offsets.clear();
  c->setters.clear();
  c->patches.clear();
  PyList_SetSlice(c->held, 0, PyList_GET_SIZE(c->held), nullptr);
  return 0;
}

void queue_dealloc(PyObject* object) {
  QueueObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (Commands* c = self->commands) {
    if (self->generation == g_generation) {
      if (c->bound) retire(bound_free, c->bound);  // a submit in flight reads it
      if (c->bound_device) device_release(c->bound_device);
    }
    Py_XDECREF(c->held);  // signals and programs stay until queued work has passed: their own release sees to it
    delete c;
  }
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* queue_repr(PyObject* self) {
  Commands* c = cast(self)->commands;
  const char* name = Py_TYPE(self)->tp_name;
  if (cast(self)->generation != g_generation) return PyUnicode_FromFormat("<%s inherited through fork>", name);
  if (c->bound)
    return PyUnicode_FromFormat("<%s: %zu commands, bound to %s>", name, c->offsets.size(),
                                c->bound_device->name.c_str());
  return PyUnicode_FromFormat("<%s: %zu commands>", name, c->offsets.size());
}

Py_ssize_t queue_length(PyObject* self) {
  Commands* c = usable(self);
  return c ? static_cast<Py_ssize_t>(c->offsets.size()) : -1;
}

// Room for one more command of `units`; nullptr with an exception set when the queue is bound.
uint8_t* append(Commands* c, uint32_t units, PyObject* held) {
  if (c->bound) {
    PyErr_SetString(PyExc_RuntimeError,
                    "this queue is bound: commands can be updated but not added; build a new queue");
    return nullptr;
  }
  size_t at = c->packets.size(), count = c->offsets.size();
  bool grown = false;
  try {
    c->packets.resize(at + units * kUnit);
    c->offsets.push_back(static_cast<uint32_t>(at / kUnit));
    c->setters.push_back(nullptr);
    grown = true;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  }
  if (!grown || PyList_Append(c->held, held) < 0) {
    c->packets.resize(at);
    c->offsets.resize(count);
    c->setters.resize(count);
    return nullptr;
  }
  if (units > c->largest) c->largest = units;
  uint8_t* p = c->packets.data() + at;
  auto* h = reinterpret_cast<PacketHeader*>(p);
  h->units = static_cast<uint16_t>(units);
  h->record = count;
  return p;
}

PyObject* self_ref(PyObject* self) {
  Py_INCREF(self);
  return self;
}

PyObject* signal_command(PyObject* self, PacketType type, PyObject* signal, uint64_t value) {
  Commands* c = usable(self);
  Signal* s = c ? signal_of(signal) : nullptr;
  if (!s) return nullptr;
  uint8_t* p = append(c, 1, signal);
  if (!p) return nullptr;
  auto* packet = reinterpret_cast<SignalPacket*>(p);
  packet->header.type = type;
  packet->signal = s;
  packet->value = value;
  if (type == PacketType::signal) c->setters.back() = s;
  return self_ref(self);
}

PyObject* signal_and_value(PyObject* self, PacketType type, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "expected a signal and a value, got %zd arguments", count);
  uint64_t value;
  if (!parse_u64(args[1], &value, "the value of a signal")) return nullptr;
  return signal_command(self, type, args[0], value);
}

PyObject* add_signal(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return signal_and_value(self, PacketType::signal, args, count);
}
PyObject* add_wait(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return signal_and_value(self, PacketType::wait, args, count);
}
PyObject* add_timestamp(PyObject* self, PyObject* signal) {
  return signal_command(self, PacketType::timestamp, signal, 0);
}

PyObject* add_barrier(PyObject* self, PyObject*) {
  Commands* c = usable(self);
  uint8_t* p = c ? append(c, 1, Py_None) : nullptr;
  if (!p) return nullptr;
  reinterpret_cast<PacketHeader*>(p)->type = PacketType::barrier;
  return self_ref(self);
}

PyObject* add_exec(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"prg", "kernargs", "global_size", "local_size", nullptr};
  PyObject *prg, *kernargs, *global = nullptr, *local = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO", const_cast<char**>(names), &prg, &kernargs, &global, &local))
    return nullptr;
  Commands* c = usable(self);
  if (!c) return nullptr;
  if (!PyObject_TypeCheck(prg, Program_Type))
    return raise("LaunchError",
                 std::string("exec takes a program of this kind of device, not ") + Py_TYPE(prg)->tp_name);
  auto* program = reinterpret_cast<ProgramObject*>(prg);
  if (!device_usable(program->device->device)) return nullptr;
  uint64_t address;
  uint32_t groups[3], items[3];
  const Limits& limits = program->device->device->limits;
  if (!parse_u64(kernargs, &address, "kernargs") || !parse_groups(global, limits, groups) ||
      !parse_items(local, limits, items) || !check_sizes(*program->program, groups, items))
    return nullptr;
  uint8_t* p = append(c, 2, prg);
  if (!p) return nullptr;
  auto* packet = reinterpret_cast<ExecPacket*>(p);
  packet->header.type = PacketType::exec;
  packet->header.flags = kExternalArgs;
  packet->program = program->program;
  std::memcpy(packet->groups, groups, sizeof groups);
  std::memcpy(packet->items, items, sizeof items);
  reinterpret_cast<ExecExtra*>(packet + 1)->arguments = reinterpret_cast<const uint8_t*>(address);
  return self_ref(self);
}

bool address_argument(PyObject* value, uint64_t* out, const char* what) { return parse_u64(value, out, what); }

PyObject* add_copy(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"dest", "src", "nbytes", nullptr};
  PyObject *dest, *src, *bytes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", const_cast<char**>(names), &dest, &src, &bytes)) return nullptr;
  Commands* c = usable(self);
  uint64_t d, s, n;
  if (!c || !address_argument(dest, &d, "dest") || !address_argument(src, &s, "src") || !parse_u64(bytes, &n, "nbytes"))
    return nullptr;
  uint8_t* p = append(c, 1, Py_None);
  if (!p) return nullptr;
  auto* packet = reinterpret_cast<CopyPacket*>(p);
  packet->header.type = PacketType::copy;
  packet->destination = d;
  packet->source = s;
  packet->bytes = n;
  return self_ref(self);
}

const char* type_name(PacketType t) {
  switch (t) {
    case PacketType::exec:
      return "exec";
    case PacketType::copy:
      return "copy";
    case PacketType::signal:
      return "signal";
    case PacketType::wait:
      return "wait";
    case PacketType::timestamp:
      return "timestamp";
    default:
      return "memory_barrier";
  }
}

// For copies between devices, while somebody profiles: what the last command, a copy, is called in traces.
PyObject* label(PyObject* self, PyObject* text) {
  Commands* c = usable(self);
  const char* words = c ? PyUnicode_AsUTF8(text) : nullptr;
  if (!words) return nullptr;
  if (c->bound || c->offsets.empty()) return PyErr_Format(PyExc_RuntimeError, "_label follows the copy it is for");
  auto* packet = reinterpret_cast<CopyPacket*>(c->packets.data() + static_cast<size_t>(c->offsets.back()) * kUnit);
  if (packet->header.type != PacketType::copy)
    return PyErr_Format(PyExc_RuntimeError, "the last command is a %s, not a copy", type_name(packet->header.type));
  packet->header.flags |= kLabelled;
  packet->value = record_label(words);
  return self_ref(self);
}

// --- updates -------------------------------------------------------------------------------------------------------
// Room for one more patch of a bound queue, before anything is changed.
bool patch_room(Commands* c) {
  if (!c->bound) return true;
  try {
    if (c->patches.size() == c->patches.capacity()) c->patches.reserve(c->patches.size() * 2 + 8);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return false;
  }
  return true;
}

// The packet of command `index`, checked to be of `type`.
uint8_t* command(Commands* c, PyObject* index, PacketType type, Py_ssize_t* out) {
  Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_IndexError);
  if (i == -1 && PyErr_Occurred()) return nullptr;
  if (i < 0 || static_cast<size_t>(i) >= c->offsets.size()) {
    PyErr_Format(PyExc_IndexError, "command %zd is out of range: the queue has %zu commands, counted from 0", i,
                 c->offsets.size());
    return nullptr;
  }
  uint8_t* p = c->packets.data() + static_cast<size_t>(c->offsets[static_cast<size_t>(i)]) * kUnit;
  PacketType is = reinterpret_cast<PacketHeader*>(p)->type;
  if (is != type) {
    PyErr_Format(PyExc_RuntimeError, "command %zd is a %s, not a %s", i, type_name(is), type_name(type));
    return nullptr;
  }
  *out = i;
  return patch_room(c) ? p : nullptr;
}

void patch(Commands* c, Py_ssize_t index, uint8_t* packet, Patch patch) {
  patch.offset = c->offsets[static_cast<size_t>(index)];
  apply_patch(packet, patch);
  if (c->bound && patch.what) c->patches.push_back(patch);  // patch_room() saw to it
}

PyObject* update_signal_or_wait(PyObject* self, PyObject* args, PyObject* kwargs, PacketType type) {
  static const char* names[] = {"cmd_idx", "signal", "value", nullptr};
  PyObject *index, *signal = nullptr, *value = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &index, &signal, &value))
    return nullptr;
  Commands* c = usable(self);
  Py_ssize_t i;
  uint8_t* p = c ? command(c, index, type, &i) : nullptr;
  if (!p) return nullptr;
  Patch change{};
  if (signal && signal != Py_None) {
    if (!(change.signal.signal = signal_of(signal))) return nullptr;
    change.what |= kPatchSignal;
  }
  if (value && value != Py_None) {
    if (!parse_u64(value, &change.signal.value, "the value of a signal")) return nullptr;
    change.what |= kPatchValue;
  }
  if (change.what & kPatchSignal) {
    if (type == PacketType::signal) c->setters[static_cast<size_t>(i)] = change.signal.signal;
    Py_INCREF(signal);
    if (PyList_SetItem(c->held, i, signal) < 0) return nullptr;
  }
  patch(c, i, p, change);
  return self_ref(self);
}

PyObject* update_signal(PyObject* self, PyObject* args, PyObject* kwargs) {
  return update_signal_or_wait(self, args, kwargs, PacketType::signal);
}
PyObject* update_wait(PyObject* self, PyObject* args, PyObject* kwargs) {
  return update_signal_or_wait(self, args, kwargs, PacketType::wait);
}

PyObject* update_exec(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cmd_idx", "global_size", "local_size", nullptr};
  PyObject *index, *global = nullptr, *local = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &index, &global, &local))
    return nullptr;
  Commands* c = usable(self);
  Py_ssize_t i;
  uint8_t* p = c ? command(c, index, PacketType::exec, &i) : nullptr;
  if (!p) return nullptr;
  auto* packet = reinterpret_cast<ExecPacket*>(p);
  auto* program = reinterpret_cast<ProgramObject*>(PyList_GET_ITEM(c->held, i));
  const Limits& limits = program->device->device->limits;
  Patch change{};
  std::memcpy(change.sizes.groups, packet->groups, sizeof packet->groups);
  std::memcpy(change.sizes.items, packet->items, sizeof packet->items);
  if (global && global != Py_None) {
    if (!parse_groups(global, limits, change.sizes.groups)) return nullptr;
    change.what |= kPatchGroups;
  }
  if (local && local != Py_None) {
    if (!parse_items(local, limits, change.sizes.items)) return nullptr;
    change.what |= kPatchItems;
  }
  if (!check_sizes(*program->program, change.sizes.groups, change.sizes.items)) return nullptr;
  patch(c, i, p, change);
  return self_ref(self);
}

PyObject* update_copy(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cmd_idx", "dest", "src", nullptr};
  PyObject *index, *dest = nullptr, *src = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO", const_cast<char**>(names), &index, &dest, &src))
    return nullptr;
  Commands* c = usable(self);
  Py_ssize_t i;
  uint8_t* p = c ? command(c, index, PacketType::copy, &i) : nullptr;
  if (!p) return nullptr;
  Patch change{};
  if (dest && dest != Py_None) {
    if (!address_argument(dest, &change.copy.destination, "dest")) return nullptr;
    change.what |= kPatchDest;
  }
  if (src && src != Py_None) {
    if (!address_argument(src, &change.copy.source, "src")) return nullptr;
    change.what |= kPatchSource;
  }
  patch(c, i, p, change);
  return self_ref(self);
}

// --- bind and submit -----------------------------------------------------------------------------------------------
QueueKind kind_of(PyObject* self) {
  // The subclass says which of the device's queues its commands go to.
  Ref kind(PyObject_GetAttrString(self, "_copies"));
  bool copies = kind && PyObject_IsTrue(kind.get()) == 1;
  PyErr_Clear();
  return copies ? QueueKind::copy : QueueKind::compute;
}

PyObject* bind(PyObject* self, PyObject* device) {
  Commands* c = usable(self);
  Device* d = c ? device_of(device) : nullptr;
  if (!d || !device_usable(d)) return nullptr;
  if (c->bound) {
    if (c->bound_device == d) return self_ref(self);
    return PyErr_Format(PyExc_RuntimeError, "this queue is bound to %s: build another for %s",
                        c->bound_device->name.c_str(), d->name.c_str());
  }
  if (c->offsets.empty()) return self_ref(self);
  auto* b = new (std::nothrow) BoundCommands;
  if (b) b->memory = static_cast<uint8_t*>(std::aligned_alloc(kUnit, c->packets.size()));
  if (!b || !b->memory) {
    delete b;
    return PyErr_NoMemory();
  }
  std::memcpy(b->memory, c->packets.data(), c->packets.size());
  b->units = static_cast<uint32_t>(c->packets.size() / kUnit);
  c->bound = b;
  c->bound_device = d;
  device_retain(d);
  return self_ref(self);
}

PyObject* submit(PyObject* self, PyObject* device) {
  Commands* c = usable(self);
  Device* d = c ? device_of(device) : nullptr;
  if (!d || !device_usable(d)) return nullptr;
  if (c->offsets.empty()) return self_ref(self);
  if (c->bound && c->bound_device != d)
    return PyErr_Format(PyExc_RuntimeError, "this queue is bound to %s and can\'t be submitted to %s",
                        c->bound_device->name.c_str(), d->name.c_str());
  if (watching()) {
    Told told = tell("submit", "(OO)", device, self);
    if (told == Told::failed) return nullptr;
    if (told == Told::taken) return self_ref(self);
  }
  if (d->injections.load(std::memory_order_relaxed)) {
    if (uint64_t error = injected(d, InjectWhat::submit, "submit")) {
      device_lose(d, error);
      return raise_fault(error);
    }
  }
  uint64_t session = recording(), began = session ? now_ns() : 0, line = line_bits();
  Queue* q = device_queue(d, kind_of(self));
  if (c->bound) {
    // Taken out: while we wait for room, other threads and signal handlers may patch for the submit after this one.
    std::vector<Patch> patches;
    patches.swap(c->patches);
    // Many patches travel in memory of their own.
    uint32_t inline_units = static_cast<uint32_t>((patches.size() * sizeof(Patch) + kUnit - 1) / kUnit);
    Patch* list = nullptr;
    bool able = true;
    if (inline_units > 64) {
      list = static_cast<Patch*>(std::malloc(patches.size() * sizeof(Patch)));
      if (list) std::memcpy(list, patches.data(), patches.size() * sizeof(Patch));
      if (!list) PyErr_NoMemory();
      able = list != nullptr;
      inline_units = 0;
    }
    if (!able || !reserve(q, 1 + inline_units, 1 + inline_units, nullptr)) {
      std::free(list);
      try {
        patches.insert(patches.end(), c->patches.begin(), c->patches.end());
      } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
      }
      c->patches.swap(patches);
      return nullptr;
    }
    auto* p = reinterpret_cast<IndirectPacket*>(queue_write(q, 1 + inline_units));
    p->header = {PacketType::indirect, static_cast<uint16_t>(1 + inline_units), kEndOfSubmit, ++q->records | line};
    p->commands = c->bound;
    p->patches = static_cast<uint32_t>(patches.size());
    p->patch_list = list;
    if (inline_units) std::memcpy(p + 1, patches.data(), patches.size() * sizeof(Patch));
  } else {
    uint64_t units = c->packets.size() / kUnit;
    if (!reserve(q, units, c->largest, nullptr)) return nullptr;
    if (c->packets.size() / kUnit != units) {
      q->produce.unlock();
      return PyErr_Format(PyExc_RuntimeError, "this queue was changed while its submit waited for room");
    }
    const uint8_t* from = c->packets.data();
    const uint8_t* end = from + c->packets.size();
    PacketHeader* last = nullptr;
    while (from < end) {
      uint32_t n = reinterpret_cast<const PacketHeader*>(from)->units;
      uint8_t* to = queue_write(q, n);
      std::memcpy(to, from, n * kUnit);
      last = reinterpret_cast<PacketHeader*>(to);
      last->record = ++q->records | line;
      from += n * kUnit;
    }
    last->flags |= kEndOfSubmit;
  }
  for (Signal* s : c->setters)
    if (s && s->setter.load(std::memory_order_relaxed) != q) s->setter.store(q, std::memory_order_relaxed);
  queue_publish(q);
  ++c->submits;
  uint64_t last = q->records;
  q->produce.unlock();
  begin(q);
  if (__builtin_expect(session != 0, 0)) {
    Record r{};
    r.kind = RecordKind::submit;
    r.start = began;
    r.end = now_ns();
    r.submit = (c->bound ? last : last - c->offsets.size() + 1) | line;
    r.what = q->id;
    r.extra = c->offsets.size();
    record_host(session, r);
  }
  run_retired();
  if (watching() && tell("submitted", "(OO)", device, self) == Told::failed) return nullptr;
  return self_ref(self);
}

// What the queue holds, as hcq.runtime.watch.commands gives it.
PyObject* commands(PyObject* self, PyObject*) {
  Commands* c = usable(self);
  if (!c) return nullptr;
  Ref list(PyList_New(0));
  for (size_t i = 0; list && i < c->offsets.size(); ++i) {
    const uint8_t* at = c->packets.data() + static_cast<size_t>(c->offsets[i]) * kUnit;
    PyObject* held = PyList_GET_ITEM(c->held, static_cast<Py_ssize_t>(i));
    PacketType type = reinterpret_cast<const PacketHeader*>(at)->type;
    Ref item;
    if (type == PacketType::exec) {
      auto* p = reinterpret_cast<const ExecPacket*>(at);
      auto kernargs = reinterpret_cast<uint64_t>(reinterpret_cast<const ExecExtra*>(p + 1)->arguments);
      item = Ref(Py_BuildValue("(sOK(III)(III))", "exec", held, static_cast<unsigned long long>(kernargs), p->groups[0],
                               p->groups[1], p->groups[2], p->items[0], p->items[1], p->items[2]));
    } else if (type == PacketType::copy) {
      auto* p = reinterpret_cast<const CopyPacket*>(at);
      item = Ref(Py_BuildValue("(sKKK)", "copy", static_cast<unsigned long long>(p->destination),
                               static_cast<unsigned long long>(p->source), static_cast<unsigned long long>(p->bytes)));
    } else if (type == PacketType::signal || type == PacketType::wait) {
      auto* p = reinterpret_cast<const SignalPacket*>(at);
      item = Ref(Py_BuildValue("(sOK)", type_name(type), held, static_cast<unsigned long long>(p->value)));
    } else if (type == PacketType::timestamp) {
      item = Ref(Py_BuildValue("(sO)", "timestamp", held));
    } else {
      item = Ref(Py_BuildValue("(s)", type_name(type)));
    }
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

#define FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f))
PyMethodDef methods[] = {
    {"signal", FAST(add_signal), METH_FASTCALL,
     "signal(signal, value)\n--\n\nSet the signal after all earlier commands."},
    {"wait", FAST(add_wait), METH_FASTCALL, "wait(signal, value)\n--\n\nGo on once the signal is at least `value`."},
    {"timestamp", add_timestamp, METH_O, "timestamp(signal)\n--\n\nWrite the time into the signal's timestamp."},
    {"memory_barrier", add_barrier, METH_NOARGS,
     "memory_barrier()\n--\n\nMake earlier writes by the host or a peer visible to later commands."},
    {"exec", FAST(add_exec), METH_VARARGS | METH_KEYWORDS,
     "exec(prg, kernargs, global_size=(1, 1, 1), local_size=(1, 1, 1))\n--\n\nRun a program with kernargs filled by\n"
     "prg.fill_kernargs. Raises LaunchError for sizes that the program or device refuses."},
    {"copy", FAST(add_copy), METH_VARARGS | METH_KEYWORDS,
     "copy(dest, src, nbytes)\n--\n\nCopy between two addresses."},
    {"update_signal", FAST(update_signal), METH_VARARGS | METH_KEYWORDS,
     "update_signal(cmd_idx, signal=None, value=None)\n--\n\nChange a signal command for the submits that follow."},
    {"update_wait", FAST(update_wait), METH_VARARGS | METH_KEYWORDS,
     "update_wait(cmd_idx, signal=None, value=None)\n--\n\nChange a wait command for the submits that follow."},
    {"update_exec", FAST(update_exec), METH_VARARGS | METH_KEYWORDS,
     "update_exec(cmd_idx, global_size=None, local_size=None)\n--\n\nChange an exec's sizes for the submits that "
     "follow."},
    {"update_copy", FAST(update_copy), METH_VARARGS | METH_KEYWORDS,
     "update_copy(cmd_idx, dest=None, src=None)\n--\n\nChange a copy's addresses for the submits that follow."},
    {"_label", label, METH_O, "_label(text)\n--\n\nWhat the last command, a copy, is called in traces."},
    {"bind", bind, METH_O,
     "bind(dev)\n--\n\nMove the commands into memory that the device reads itself; a submit then copies nothing."},
    {"submit", submit, METH_O,
     "submit(dev)\n--\n\nQueue all commands, as one. Doesn't wait for them; when the device's queue is full it waits "
     "for\n"
     "room and raises SignalTimeout with nothing queued at its deadline (HCQ_TIMEOUT_MS)."},
    {"_commands", commands, METH_NOARGS, "_commands()\n--\n\nWhat the queue holds: a list of (method, *arguments)."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(QueueObject, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(queue_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(queue_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(queue_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(queue_clear)},
    {Py_tp_repr, reinterpret_cast<void*>(queue_repr)},
    {Py_sq_length, reinterpret_cast<void*>(queue_length)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("A list of commands for a native queue. Not for several threads at once.")},
    {0, nullptr}};
PyType_Spec spec = {"hcq._native.CommandQueue", sizeof(QueueObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
}  // namespace

uint64_t submits_of(PyObject* queue) {
  return PyObject_TypeCheck(queue, CommandQueue_Type) ? cast(queue)->commands->submits : 0;
}

int init_command_queue(PyObject* module) {
  CommandQueue_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return CommandQueue_Type ? PyModule_AddType(module, CommandQueue_Type) : -1;
}

}  // namespace hcq
