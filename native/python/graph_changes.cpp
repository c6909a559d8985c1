// What replays change in a graph's commands: slots of addresses and values, single values, sizes. Each change becomes a
// patch that travels with the next replay.
#include <algorithm>
#include <new>
#include <set>

#include "memory/memory.hpp"
#include "python/graph.hpp"

namespace hcq {

namespace {
bool place(GraphState* g, unsigned slot, const GraphCommand& c, uint32_t offset, uint32_t bytes, uint64_t addend) {
  if (slot >= g->slots.size()) {
    PyErr_Format(PyExc_IndexError, "no slot %u", slot);
    return false;
  }
  g->places[slot].push_back({c.lane, {c.offset * kUnit + offset, bytes, addend}});
  for (uint32_t lane : g->slots[slot].lanes)
    if (lane == c.lane) return true;
  g->slots[slot].lanes.push_back(c.lane);
  return true;
}

// Keeps the last change of each place, in their order. Commands that are not replayed, since a graph has others for the
// inputs that it has now, would gather changes for ever.
void compact(std::vector<Patch>& pending) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  auto kept = std::remove_if(pending.rbegin(), pending.rend(), [&](const Patch& patch) {
    return !seen.insert({patch.offset, patch.what}).second;
  });
  pending.erase(pending.begin(), kept.base());
}

void make_room(GraphLane& lane, size_t changes) {
  if (lane.pending.size() + changes > lane.most) {
    compact(lane.pending);
    lane.most = std::max<size_t>(1024, 2 * (lane.pending.size() + changes));
  }
  if (lane.pending.size() + changes > lane.pending.capacity())
    lane.pending.reserve(2 * lane.pending.size() + changes + 8);
}

// The same with an exception instead.
bool room_for(GraphState* g, size_t changes) {
  try {
    graph_make_room(g, changes);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return false;
  }
  return true;
}

GraphState* changing(PyObject* self, unsigned slot) {
  GraphState* g = graph_usable(self);
  if (g && slot >= g->slots.size()) {
    PyErr_Format(PyExc_IndexError, "no slot %u", slot);
    return nullptr;
  }
  return g;
}
}  // namespace

void graph_make_room(GraphState* g, size_t changes) {
  for (GraphLane& lane : g->lanes) make_room(lane, changes);
}

void graph_fill_slot(GraphState* g, uint32_t slot, uint64_t content) {
  GraphSlot& s = g->slots[slot];
  if (s.known && s.content == content) return;
  Patch patch{};
  patch.offset = slot;
  patch.what = kPatchSlot;
  patch.content = content;
  for (uint32_t lane : s.lanes) g->lanes[lane].pending.push_back(patch);
  ++g->changes;
  s.known = true;
  s.content = content;
}

void graph_patch_value(GraphState* g, const GraphCommand& c, uint32_t position, const PackedValue& value) {
  for (uint32_t at = 0; at < value.size; at += 8) {
    Patch patch{};
    patch.offset = (c.offset + 1) * kUnit + value.offset + at;
    patch.what = kPatchBytes | std::min(value.size - at, 8u) * kPatchByte;
    patch.content = at ? value.more[at / 8 - 1] : value.content;
    g->lanes[c.lane].pending.push_back(patch);
    ++g->changes;
  }
  g->slots[c.slots[position]].known = false;
}

void graph_patch_sizes(GraphState* g, const GraphCommand& c, const Sizes& sizes) {
  Patch patch{};
  patch.offset = c.offset;
  patch.what = kPatchGroups | kPatchItems;
  std::copy(sizes.groups, sizes.groups + 3, patch.sizes.groups);
  std::copy(sizes.items, sizes.items + 3, patch.sizes.items);
  g->lanes[c.lane].pending.push_back(patch);
  ++g->changes;
}

PyObject* graph_add_slot(PyObject* self, PyObject*) {
  GraphState* g = graph_building(self);
  if (!g) return nullptr;
  g->slots.emplace_back();
  g->places.emplace_back();
  return PyLong_FromSize_t(g->slots.size() - 1);
}

// The slot's address, plus addend, is buffer `index` of an exec, or destination (0) or source (1) of a copy.
PyObject* graph_bind_address(PyObject* self, PyObject* args) {
  unsigned slot, command, index;
  unsigned long long addend;
  if (!PyArg_ParseTuple(args, "IIIK", &slot, &command, &index, &addend)) return nullptr;
  GraphState* g = graph_building(self);
  GraphCommand* c = g ? graph_command(g, command) : nullptr;
  if (!c) return nullptr;
  uint32_t offset;
  if (c->program)
    offset = kUnit + (c->program->typed ? 8 * index : 8 * (index + 1));  // as pack_arguments puts them
  else
    offset = static_cast<uint32_t>(index ? offsetof(CopyPacket, source) : offsetof(CopyPacket, destination));
  if (!place(g, slot, *c, offset, 8, addend)) return nullptr;
  Py_RETURN_NONE;
}

// The slot's value is value `position` of an exec, which has those before it already. All of a slot have one type: that
// of the first.
PyObject* graph_bind_value(PyObject* self, PyObject* args) {
  unsigned slot, command, position;
  if (!PyArg_ParseTuple(args, "III", &slot, &command, &position)) return nullptr;
  GraphState* g = graph_building(self);
  GraphCommand* c = g ? graph_command(g, command) : nullptr;
  if (!c) return nullptr;
  const Program* p = c->program;
  if (!p || slot >= g->slots.size() || (p->typed && position >= p->params.size() - p->pointers))
    return PyErr_Format(PyExc_IndexError, "command %u has no value %u", command, position);
  if (position != c->slots.size()) return PyErr_Format(PyExc_ValueError, "values are bound in their order");
  GraphSlot& s = g->slots[slot];
  if (!s.program) {
    s.program = p;
    s.buffers = c->buffers;
    s.position = position;
  }
  const Param* known = value_param(*p, c->buffers, position);
  s.structure = known && known->kind == ParamKind::structure;
  if (s.structure) {
    c->slots.push_back(slot);
    Py_RETURN_NONE;
  }
  uint32_t offset = known ? known->offset : 8 * (1 + c->buffers + position);
  uint32_t bytes = known ? known->size : 8;
  if (!place(g, slot, *c, kUnit + offset, bytes, 0)) return nullptr;
  c->slots.push_back(slot);
  Py_RETURN_NONE;
}

PyObject* graph_set_address(PyObject* self, PyObject* args) {
  unsigned slot;
  unsigned long long address;
  PyObject* memory;
  if (!PyArg_ParseTuple(args, "IKO", &slot, &address, &memory)) return nullptr;
  GraphState* g = changing(self, slot);
  if (!g) return nullptr;
  // Before anything changes. What is let go of here is used by replays under way: its own release waits for them.
  Ref kept(memory_keep(memory));
  if (!kept || !room_for(g, 1)) return nullptr;
  graph_fill_slot(g, slot, address);
  PyObject* before = g->slots[slot].held;
  g->slots[slot].held = kept.release();
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

PyObject* graph_set_value(PyObject* self, PyObject* args) {
  unsigned slot;
  PyObject* value;
  int dry = 0;
  if (!PyArg_ParseTuple(args, "IO|p", &slot, &value, &dry)) return nullptr;
  GraphState* g = changing(self, slot);
  if (!g) return nullptr;
  const GraphSlot& s = g->slots[slot];
  if (!s.program) return PyErr_Format(PyExc_RuntimeError, "slot %u is bound to no value", slot);
  PackedValue packed;
  if (!pack_value(*s.program, s.buffers, s.position, value, &packed)) return nullptr;
  if (dry) Py_RETURN_NONE;
  if (!s.structure) {
    if (!room_for(g, 1)) return nullptr;
    graph_fill_slot(g, slot, packed.content);
    Py_RETURN_NONE;
  }
  std::vector<std::pair<const GraphCommand*, uint32_t>> places;
  for (const GraphCommand& c : g->commands)
    for (uint32_t position = 0; position < c.slots.size(); ++position)
      if (c.slots[position] == slot) places.push_back({&c, position});
  if (!room_for(g, places.size() * (1 + packed.more.size()))) return nullptr;
  for (auto [c, position] : places) {
    packed.offset = value_param(*c->program, c->buffers, position)->offset;
    graph_patch_value(g, *c, position, packed);
  }
  Py_RETURN_NONE;
}

// One value of one launch, whichever slot it belongs to.
PyObject* graph_set_one(PyObject* self, PyObject* args) {
  unsigned command, position;
  PyObject* value;
  int dry = 0;
  if (!PyArg_ParseTuple(args, "IIO|p", &command, &position, &value, &dry)) return nullptr;
  GraphState* g = graph_usable(self);
  GraphCommand* c = g ? graph_command(g, command) : nullptr;
  if (!c) return nullptr;
  if (!c->program || position >= c->slots.size())
    return PyErr_Format(PyExc_IndexError, "command %u has no value %u", command, position);
  PackedValue packed;
  if (!pack_value(*c->program, c->buffers, position, value, &packed)) return nullptr;
  if (dry) Py_RETURN_NONE;
  if (!room_for(g, 1 + packed.more.size())) return nullptr;
  graph_patch_value(g, *c, position, packed);
  Py_RETURN_NONE;
}

// Sizes are checked here: they depend on the program and its device.
PyObject* graph_set_sizes(PyObject* self, PyObject* args) {
  unsigned command;
  PyObject *global, *local;
  int dry = 0;
  if (!PyArg_ParseTuple(args, "IOO|p", &command, &global, &local, &dry)) return nullptr;
  GraphState* g = graph_usable(self);
  GraphCommand* c = g ? graph_command(g, command) : nullptr;
  if (!c) return nullptr;
  if (!c->program) return PyErr_Format(PyExc_ValueError, "command %u is no launch", command);
  const Limits& limits = g->lanes[c->lane].device->limits;
  Sizes sizes;
  if (!parse_groups(global, limits, sizes.groups) || !parse_items(local, limits, sizes.items) ||
      !check_sizes(*c->program, sizes.groups, sizes.items))
    return nullptr;
  if (dry) Py_RETURN_NONE;
  if (!room_for(g, 1)) return nullptr;
  graph_patch_sizes(g, *c, sizes);
  Py_RETURN_NONE;
}

}  // namespace hcq
