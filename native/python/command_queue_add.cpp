// Adding commands to a command queue, each a packet as it goes into a ring.
#include <cstring>
#include <new>

#include "core/names.hpp"
#include "core/record.hpp"
#include "python/command_queue.hpp"

namespace hcq::command_queue {

namespace {
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

}  // namespace

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

PyObject* add_copy(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"dest", "src", "nbytes", nullptr};
  PyObject *dest, *src, *bytes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", const_cast<char**>(names), &dest, &src, &bytes)) return nullptr;
  Commands* c = usable(self);
  uint64_t d, s, n;
  if (!c || !parse_u64(dest, &d, "dest") || !parse_u64(src, &s, "src") || !parse_u64(bytes, &n, "nbytes"))
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

}  // namespace hcq::command_queue
