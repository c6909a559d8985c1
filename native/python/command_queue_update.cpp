// Changing commands of a queue for the submits that follow.
#include <cstring>
#include <new>

#include "python/command_queue.hpp"

namespace hcq::command_queue {

namespace {
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
}  // namespace

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
    if (!parse_u64(dest, &change.copy.destination, "dest")) return nullptr;
    change.what |= kPatchDest;
  }
  if (src && src != Py_None) {
    if (!parse_u64(src, &change.copy.source, "src")) return nullptr;
    change.what |= kPatchSource;
  }
  patch(c, i, p, change);
  return self_ref(self);
}

}  // namespace hcq::command_queue
