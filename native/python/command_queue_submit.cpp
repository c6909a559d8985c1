// Binding a command queue to a device, submitting it, and saying what it holds.
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/interface.hpp"
#include "core/names.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "python/command_queue.hpp"
#include "python/user_line.hpp"
#include "python/watch.hpp"

namespace hcq::command_queue {

namespace {
QueueKind kind_of(PyObject* self) {
  // The subclass says which of the device's queues its commands go to.
  Ref kind(PyObject_GetAttrString(self, "_copies"));
  bool copies = kind && PyObject_IsTrue(kind.get()) == 1;
  PyErr_Clear();
  return copies ? QueueKind::copy : QueueKind::compute;
}
}  // namespace

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

}  // namespace hcq::command_queue
