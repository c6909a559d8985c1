// _native.GraphCommands: the commands of a graph on devices of native queues, packed for replays. hcq.graph decides
// what goes where and what waits for what; here are packets, the places that replays change, and what keeps it alive.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/names.hpp"
#include "core/retire.hpp"
#include "python/graph.hpp"

namespace hcq {

namespace {
PyTypeObject* Graph_Type;

GraphObject* cast(PyObject* o) { return reinterpret_cast<GraphObject*>(o); }

bool hold(PyObject* self, PyObject* object) { return PyList_Append(cast(self)->held, object) == 0; }

GraphLane* lane_of(GraphState* g, unsigned index) {
  if (index < g->lanes.size()) return &g->lanes[index];
  PyErr_Format(PyExc_IndexError, "no lane %u", index);
  return nullptr;
}

// Room for a packet at the end of a lane; null without memory. Good until the next call.
uint8_t* append(GraphState* g, unsigned lane, PacketType type, uint32_t units, Program* program, uint32_t buffers) {
  GraphLane& l = g->lanes[lane];
  size_t at = l.packets.size();
  try {
    g->commands.push_back({lane, static_cast<uint32_t>(at / kUnit), program, buffers});
    l.packets.resize(at + static_cast<size_t>(units) * kUnit);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return nullptr;
  }
  auto* h = reinterpret_cast<PacketHeader*>(l.packets.data() + at);
  h->type = type;
  h->units = static_cast<uint16_t>(units);
  h->record = (g->commands.size() - 1) | g->line << kLineShift;
  return l.packets.data() + at;
}

PyObject* last_command(GraphState* g) { return PyLong_FromSize_t(g->commands.size() - 1); }

PyObject* add_exec_packet(GraphState* g, unsigned lane, ProgramObject* program, const uint32_t groups[3],
                          const uint32_t items[3], const void* arguments, uint32_t size, uint32_t buffers) {
  uint32_t units = 1 + (size + kUnit - 1) / kUnit;
  uint8_t* at = append(g, lane, PacketType::exec, units, program->program, buffers);
  if (!at) return nullptr;
  auto* p = reinterpret_cast<ExecPacket*>(at);
  p->program = program->program;
  std::memcpy(p->groups, groups, sizeof p->groups);
  std::memcpy(p->items, items, sizeof p->items);
  std::memcpy(inline_arguments(p), arguments, size);
  return last_command(g);
}

// The program, its sizes checked; null with an exception.
ProgramObject* launch_of(PyObject* self, unsigned lane, PyObject* prg, PyObject* global, PyObject* local,
                         uint32_t groups[3], uint32_t items[3]) {
  GraphState* g = graph_building(self);
  if (!g || !lane_of(g, lane)) return nullptr;
  if (!PyObject_TypeCheck(prg, Program_Type)) {
    raise("LaunchError", std::string("expected a program of native queues, not ") + Py_TYPE(prg)->tp_name);
    return nullptr;
  }
  auto* program = reinterpret_cast<ProgramObject*>(prg);
  const Limits& limits = program->device->device->limits;
  if (!parse_groups(global, limits, groups) || !parse_items(local, limits, items) ||
      !check_sizes(*program->program, groups, items) || !hold(self, prg))
    return nullptr;
  return program;
}

PyObject* add_exec(PyObject* self, PyObject* args) {
  unsigned lane;
  PyObject *prg, *bufs, *vals, *global, *local;
  uint32_t groups[3], items[3];
  if (!PyArg_ParseTuple(args, "IOO!OOO", &lane, &prg, &PyTuple_Type, &bufs, &vals, &global, &local)) return nullptr;
  ProgramObject* program = launch_of(self, lane, prg, global, local, groups, items);
  if (!program) return nullptr;
  Arguments arguments;
  arguments.accesses = &program->accesses;
  Py_ssize_t count = PyTuple_GET_SIZE(bufs);
  if (!pack_arguments(*program->program, &PyTuple_GET_ITEM(bufs, 0), count, vals, &arguments)) return nullptr;
  if (arguments.arrays)
    return raise("LaunchError", program->program->name + ": a graph takes buffers; wrap arrays with hcq.array(a)");
  return add_exec_packet(cast(self)->state, lane, program, groups, items, arguments.bytes, arguments.size,
                         static_cast<uint32_t>(count));
}

// An exec whose kernargs somebody has filled.
PyObject* add_packed(PyObject* self, PyObject* args) {
  unsigned lane;
  PyObject *prg, *global, *local;
  Py_buffer kernargs;
  uint32_t groups[3], items[3];
  if (!PyArg_ParseTuple(args, "IOy*OO", &lane, &prg, &kernargs, &global, &local)) return nullptr;
  ProgramObject* program = launch_of(self, lane, prg, global, local, groups, items);
  PyObject* result = nullptr;
  if (program && kernargs.len > kMaxInlineArguments)
    PyErr_Format(PyExc_ValueError, "%zd bytes of kernargs: at most %u", kernargs.len, kMaxInlineArguments);
  else if (program)
    result = add_exec_packet(cast(self)->state, lane, program, groups, items, kernargs.buf,
                             static_cast<uint32_t>(kernargs.len), program->program->pointers);
  PyBuffer_Release(&kernargs);
  return result;
}

PyObject* set_line(PyObject* self, PyObject* number) {
  GraphState* g = graph_building(self);
  if (!g || !parse_u64(number, &g->line, "a line's number")) return nullptr;
  Py_RETURN_NONE;
}

PyObject* add_copy(PyObject* self, PyObject* args) {
  unsigned lane;
  unsigned long long dest, src, bytes;
  if (!PyArg_ParseTuple(args, "IKKK", &lane, &dest, &src, &bytes)) return nullptr;
  GraphState* g = graph_building(self);
  if (!g || !lane_of(g, lane)) return nullptr;
  uint8_t* at = append(g, lane, PacketType::copy, 1, nullptr, 0);
  if (!at) return nullptr;
  auto* p = reinterpret_cast<CopyPacket*>(at);
  p->destination = dest;
  p->source = src;
  p->bytes = bytes;
  return last_command(g);
}

PyObject* add_signal_packet(PyObject* self, unsigned lane, PacketType type, Signal* signal, uint64_t value,
                            uint32_t flags) {
  GraphState* g = graph_building(self);
  if (!g || !lane_of(g, lane)) return nullptr;
  uint8_t* at = append(g, lane, type, 1, nullptr, 0);
  if (!at) return nullptr;
  auto* p = reinterpret_cast<SignalPacket*>(at);
  p->header.flags = flags;
  p->signal = signal;
  p->value = value;
  return last_command(g);
}

PyObject* add_signal_command(PyObject* self, PyObject* args) {
  unsigned lane;
  const char* what;
  PyObject* object;
  unsigned long long value;
  if (!PyArg_ParseTuple(args, "IsOK", &lane, &what, &object, &value)) return nullptr;
  Signal* signal = signal_of(object);
  if (!signal || !hold(self, object)) return nullptr;
  PacketType type = *what == 's' ? PacketType::signal : *what == 'w' ? PacketType::wait : PacketType::timestamp;
  return add_signal_packet(self, lane, type, signal, value, 0);
}

// Counts on this lane: others may wait until it has come here.
PyObject* add_mark(PyObject* self, PyObject* args) {
  unsigned lane;
  if (!PyArg_ParseTuple(args, "I", &lane)) return nullptr;
  GraphState* g = graph_building(self);
  GraphLane* l = g ? lane_of(g, lane) : nullptr;
  if (!l) return nullptr;
  Ref added(add_signal_packet(self, lane, PacketType::signal, l->counter, l->marks + 1, kRelative));
  return added ? PyLong_FromUnsignedLongLong(++l->marks) : nullptr;
}

PyObject* add_wait_mark(PyObject* self, PyObject* args) {
  unsigned lane, other;
  unsigned long long mark;
  if (!PyArg_ParseTuple(args, "IIK", &lane, &other, &mark)) return nullptr;
  GraphState* g = graph_building(self);
  GraphLane* l = g ? lane_of(g, other) : nullptr;
  return l ? add_signal_packet(self, lane, PacketType::wait, l->counter, mark, kRelative) : nullptr;
}

// Moves the commands into memory of their own; from now on there are replays. `nodes`: (node, command) pairs.
PyObject* seal(PyObject* self, PyObject* nodes) {
  GraphState* g = graph_building(self);
  if (!g) return nullptr;
  if (!PyDict_Check(nodes)) return PyErr_Format(PyExc_TypeError, "a dict of commands by node is expected");
  try {
    PyObject *key, *value;
    for (Py_ssize_t i = 0; PyDict_Next(nodes, &i, &key, &value);) {
      unsigned long node = PyLong_AsUnsignedLong(key), command = PyLong_AsUnsignedLong(value);
      if (PyErr_Occurred()) return nullptr;
      if (node >= g->at.size()) g->at.resize(node + 1, UINT32_MAX);
      g->at[node] = static_cast<uint32_t>(command);
    }
    for (GraphLane& l : g->lanes) {
      if (l.packets.empty()) continue;
      l.commands = new BoundCommands;
      l.commands->slots.resize(g->slots.size());
      l.commands->memory = static_cast<uint8_t*>(std::aligned_alloc(kUnit, l.packets.size()));
      if (!l.commands->memory) throw std::bad_alloc();
      std::memcpy(l.commands->memory, l.packets.data(), l.packets.size());
      l.commands->units = static_cast<uint32_t>(l.packets.size() / kUnit);
      std::vector<uint8_t>().swap(l.packets);
    }
    for (size_t slot = 0; slot < g->places.size(); ++slot)
      for (auto& [lane, at] : g->places[slot]) g->lanes[lane].commands->slots[slot].push_back(at);
    std::vector<std::vector<std::pair<uint32_t, Place>>>().swap(g->places);
    for (GraphLane& l : g->lanes) {
      if (l.main) g->timelines.push_back(&l.device->timeline);
      g->queues.push_back(l.queue);
      g->stride = std::max(g->stride, l.marks + 1);
    }
    std::sort(g->timelines.begin(), g->timelines.end());
    std::sort(g->queues.begin(), g->queues.end());
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  g->sealed = true;
  Py_RETURN_NONE;
}

// --- life ----------------------------------------------------------------------------------------------------------
// GraphCommands(((device, ordinal), ...)): a lane each; ordinal 0 is the device's own compute queue.
PyObject* graph_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"lanes", nullptr};
  PyObject* lanes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", const_cast<char**>(names), &PyTuple_Type, &lanes))
    return nullptr;
  auto* self = cast(type->tp_alloc(type, 0));
  Ref owned(reinterpret_cast<PyObject*>(self));
  if (!self) return nullptr;
  self->generation = g_generation;
  self->state = new (std::nothrow) GraphState;
  Py_ssize_t count = PyTuple_GET_SIZE(lanes);
  self->held = PyList_New(0);
  self->devices = PyTuple_New(count);
  if (!self->state || !self->held || !self->devices) return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* device;
    unsigned ordinal;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(lanes, i), "OI", &device, &ordinal)) return nullptr;
    Device* d = device_of(device);
    if (!d || !device_usable(d)) return nullptr;
    PyTuple_SET_ITEM(self->devices, i, Py_NewRef(device));
    try {
      GraphLane lane{};
      lane.device = d;
      lane.device_object = device;
      lane.main = ordinal == 0;
      self->state->lanes.reserve(static_cast<size_t>(count));
      lane.queue = device_lane(d, ordinal);
      lane.counter = signal_create(0);
      queue_retain(lane.queue);
      device_retain(d);
      self->state->lanes.push_back(std::move(lane));
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    }
  }
  return owned.release();
}

void free_state(void* p) {
  auto* g = static_cast<GraphState*>(p);
  for (GraphLane& l : g->lanes) {
    if (l.commands) {
      Freeing freeing;
      std::free(l.commands->memory);
      delete l.commands;
    }
    queue_release(l.queue);
    signal_release(l.counter);
    device_release(l.device);
  }
  delete g;
}

int graph_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(cast(self)->devices);
  Py_VISIT(cast(self)->held);
  Py_VISIT(cast(self)->part);
  return 0;
}

void graph_dealloc(PyObject* object) {
  GraphObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  if (GraphState* g = self->state; g && self->generation == g_generation) {
    for (GraphSlot& s : g->slots) Py_CLEAR(s.held);
    retire(free_state, g);  // replays under way read it
  }
  // Programs, memory and signals stay until queued work has passed: their own release sees to it.
  Py_XDECREF(self->held);
  Py_XDECREF(self->part);
  Py_XDECREF(self->devices);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"exec", add_exec, METH_VARARGS, "exec(lane, program, bufs, vals, groups, items)\n--\n\nAdd a launch."},
    {"exec_packed", add_packed, METH_VARARGS,
     "exec_packed(lane, program, kernargs, groups, items)\n--\n\nAdd a launch whose arguments are in bytes."},
    {"set_line", set_line, METH_O, "set_line(number)\n--\n\nThe user's line that the next commands are of."},
    {"copy", add_copy, METH_VARARGS, "copy(lane, dest, src, nbytes)\n--\n\nAdd a copy between addresses."},
    {"signal_command", add_signal_command, METH_VARARGS,
     "signal_command(lane, what, signal, value)\n--\n\nAdd a 'signal', 'wait' or 'timestamp' of a user's signal."},
    {"mark", add_mark, METH_VARARGS, "mark(lane)\n--\n\nCount here; the number is what others wait for."},
    {"wait_mark", add_wait_mark, METH_VARARGS, "wait_mark(lane, other, mark)\n--\n\nGo on once `other` has counted."},
    {"slot", graph_add_slot, METH_NOARGS, "slot()\n--\n\nA new slot, for what replays change."},
    {"bind_address", graph_bind_address, METH_VARARGS,
     "bind_address(slot, command, index, addend)\n--\n\nBuffer `index` of a launch, or dest (0) or src (1) of a copy."},
    {"bind_value", graph_bind_value, METH_VARARGS, "bind_value(slot, command, position)\n--\n\nA value of a launch."},
    {"seal", seal, METH_O,
     "seal(nodes)\n--\n\nNo more commands: replays may begin. Which command each node is: a dict."},
    {"set_address", graph_set_address, METH_VARARGS,
     "set_address(slot, address, memory)\n--\n\nChange it for the replays that follow; `memory` is kept until the "
     "next change."},
    {"set_value", graph_set_value, METH_VARARGS,
     "set_value(slot, value, dry=False)\n--\n\nChange it for the replays that follow; dry: only see whether it can "
     "be."},
    {"set_one", graph_set_one, METH_VARARGS,
     "set_one(command, position, value, dry=False)\n--\n\nChange one launch's value."},
    {"set_sizes", graph_set_sizes, METH_VARARGS,
     "set_sizes(command, groups, items, dry=False)\n--\n\nChange a launch's sizes for the replays that follow."},
    {"replay", graph_replay, METH_NOARGS,
     "replay()\n--\n\nQueue all commands, once, after all work queued on the devices; returns a Replay. Doesn't wait."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"part", T_OBJECT, offsetof(GraphObject, part), 0, "What replays are told of as; None: nothing."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(graph_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(graph_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(graph_traverse)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("GraphCommands(lanes)\n--\n\nThe commands of a graph, in lanes: "
                                                     "((device, ordinal), ...). One thread at a time.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.GraphCommands", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};
}  // namespace

GraphState* graph_usable(PyObject* self) {
  GraphObject* g = cast(self);
  if (__builtin_expect(g->generation != g_generation, 0)) {
    raise_forked(g->generation, "a graph");
    return nullptr;
  }
  return g->state;
}

bool graph_check(PyObject* object) { return Py_TYPE(object) == Graph_Type; }

GraphState* graph_building(PyObject* self) {
  GraphState* g = graph_usable(self);
  if (g && g->sealed) {
    PyErr_SetString(PyExc_RuntimeError, "these commands are sealed: no more can be added");
    return nullptr;
  }
  return g;
}

GraphCommand* graph_command(GraphState* g, unsigned index) {
  if (index < g->commands.size()) return &g->commands[index];
  PyErr_Format(PyExc_IndexError, "no command %u", index);
  return nullptr;
}

int init_graph(PyObject* module) {
  Graph_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Graph_Type ? PyModule_AddType(module, Graph_Type) : -1;
}

}  // namespace hcq
