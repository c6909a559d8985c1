// A list of commands for a native queue, kept as packets (_native.CommandQueue), and its methods: adding commands
// (command_queue_add), changing them (command_queue_update), binding and submitting (command_queue_submit).
#pragma once
#include <vector>

#include "core/scheduler.hpp"
#include "python/arguments.hpp"

namespace hcq::command_queue {

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

inline QueueObject* cast(PyObject* o) { return reinterpret_cast<QueueObject*>(o); }

// What the queue holds; nullptr with an exception set in a forked child.
inline Commands* usable(PyObject* self) {
  QueueObject* q = cast(self);
  if (__builtin_expect(q->generation != g_generation, 0)) {
    raise_forked(q->generation, "a command queue");
    return nullptr;
  }
  return q->commands;
}

inline PyObject* self_ref(PyObject* self) {
  Py_INCREF(self);
  return self;
}

const char* type_name(PacketType);

PyObject* add_signal(PyObject* self, PyObject* const* args, Py_ssize_t count);
PyObject* add_wait(PyObject* self, PyObject* const* args, Py_ssize_t count);
PyObject* add_timestamp(PyObject* self, PyObject* signal);
PyObject* add_barrier(PyObject* self, PyObject*);
PyObject* add_exec(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* add_copy(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* label(PyObject* self, PyObject* text);

PyObject* update_signal(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* update_wait(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* update_exec(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* update_copy(PyObject* self, PyObject* args, PyObject* kwargs);

PyObject* bind(PyObject* self, PyObject* device);
PyObject* submit(PyObject* self, PyObject* device);
PyObject* commands(PyObject* self, PyObject*);

}  // namespace hcq::command_queue
