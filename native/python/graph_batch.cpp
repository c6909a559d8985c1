// Gathering what a replay changes, and carrying it out. What is not plain (mistakes, memory of drivers in Python, other
// sequences than tuples) is declined: hcq.graph.changes does it then, or says what is wrong.
#include "python/graph_batch.hpp"

#include <utility>

#include "memory/memory.hpp"

namespace hcq {

namespace {
Gathered declined() {
  PyErr_Clear();
  return Gathered::declined;
}

// --- gathering: may run Python, changes nothing --------------------
Gathered gather_slot(Batch* b, uint32_t slot, PyObject* buf) {
  GraphInputObject* place = graph_input(PyTuple_GET_ITEM(b->self->places, slot));
  PyObject* handle = buf;
  uint64_t bytes;
  if (buffer_check(buf)) {
    auto* buffer = reinterpret_cast<BufferObject*>(buf);
    if (!buffer_usable(buffer)) return declined();
    handle = buffer->buf;
    if (!handle || !hcq_buffer_check(handle)) return Gathered::declined;
    if (place->device != Py_None && buffer->device != place->device &&
        PyUnicode_Compare(buffer->device, place->device) != 0)
      return declined();
    bytes = buffer->nbytes;
  } else if (hcq_buffer_check(buf) && !place->by_host) {
    if (!hcq_buffer_usable(buf)) return declined();
    bytes = reinterpret_cast<HCQBufferObject*>(buf)->size;
  } else {
    return Gathered::declined;
  }
  if (hcq_buffer_opaque(handle) || hcq_buffer_opaque(place->handle)) return Gathered::declined;
  uint64_t start = reinterpret_cast<HCQBufferObject*>(handle)->va_addr;
  Span span{start, start + bytes};
  if (bytes < (b->smaller ? place->copied : place->captured.end - place->captured.start)) return Gathered::declined;
  if (place->names > 1) {  // one buffer under several names gets one here too
    for (const Change& other : b->changes)
      if (other.what == What::input && other.index == slot && !(other.span == span)) return Gathered::declined;
  } else if (buf == place->buf && span == place->now) {
    return Gathered::yes;
  }
  Ref kept(memory_keep(buf));
  if (!kept) return Gathered::failed;
  b->changes.emplace_back(What::input, slot);
  Change& change = b->changes.back();
  change.span = span;
  change.buf = Ref(Py_NewRef(buf));
  change.handle = Ref(Py_NewRef(handle));
  for (Py_ssize_t i = 0; i < b->count; ++i) change.kept[i] = Ref(Py_NewRef(kept.get()));
  return Gathered::yes;
}

Gathered gather_input(Batch* b, PyObject* name, PyObject* buf) {
  PyObject* slot = PyDict_GetItemWithError(b->self->by_name, name);
  return slot ? gather_slot(b, static_cast<uint32_t>(PyLong_AsUnsignedLong(slot)), buf) : declined();
}

// All inputs, in the order of their names.
Gathered gather_inputs(Batch* b, PyObject* bufs) {
  PyObject *name, *slot, *names = b->self->by_name;
  if (PyTuple_GET_SIZE(bufs) != PyDict_GET_SIZE(names)) return Gathered::declined;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; PyDict_Next(names, &at, &name, &slot); ++i) {
    Gathered result = gather_slot(b, static_cast<uint32_t>(PyLong_AsUnsignedLong(slot)), PyTuple_GET_ITEM(bufs, i));
    if (result != Gathered::yes) return result;
  }
  return Gathered::yes;
}

// Makes room for the entry in the record, so that setting it later can't fail; an entry None says nothing.
bool note(Batch* b, Change* change, PyObject* key, PyObject* first, PyObject* second) {
  PyObject* record = b->self->record;
  int known = PyDict_Contains(record, key);
  if (known < 0 || (!known && PyDict_SetItem(record, key, Py_None) < 0)) return false;
  Ref when(PyLong_FromUnsignedLongLong(b->self->when + 1 + b->changes.size()));
  if (!when) return false;
  change->entry = Ref(second ? PyTuple_Pack(3, when.get(), first, second) : PyTuple_Pack(2, when.get(), first));
  change->key = Ref(Py_NewRef(key));
  return static_cast<bool>(change->entry);
}

GraphCommand* command_of(GraphState* g, uint32_t node) {
  if (node >= g->at.size() || g->at[node] >= g->commands.size()) return nullptr;
  GraphCommand* c = &g->commands[g->at[node]];
  return c->program ? c : nullptr;
}

// Of a structure Python keeps the bytes, and the patches may be many.
bool is_structure(const GraphCommand& c, size_t position) {
  const Param* known = value_param(*c.program, c.buffers, position);
  return known && known->kind == ParamKind::structure;
}

Gathered gather_one(Batch* b, PyObject* place, PyObject* value) {
  PyObject *first = PyTuple_GET_ITEM(place, 0), *second = PyTuple_GET_ITEM(place, 1);
  if (!PyLong_CheckExact(first) || !PyLong_CheckExact(second)) return Gathered::declined;
  unsigned long node = PyLong_AsUnsignedLong(first), position = PyLong_AsUnsignedLong(second);
  if (PyErr_Occurred() || node >= UINT32_MAX) return declined();
  GraphCommand* c = command_of(b->states[0], static_cast<uint32_t>(node));
  if (!c || position >= c->slots.size()) return Gathered::declined;
  PackedValue packed;
  if (!pack_value(*c->program, c->buffers, position, value, &packed) || is_structure(*c, position)) return declined();
  b->changes.emplace_back(What::one, static_cast<uint32_t>(node));
  b->changes.back().position = static_cast<uint32_t>(position);
  b->changes.back().value = std::move(packed);
  return note(b, &b->changes.back(), place, value, nullptr) ? Gathered::yes : Gathered::failed;
}

Gathered gather_named(Batch* b, PyObject* name, PyObject* value) {
  PyObject* known = PyDict_GetItemWithError(b->self->values, name);
  if (!known) return declined();
  Ref kept(Py_NewRef(known));
  PyObject *slots = PyTuple_GET_ITEM(known, 0), *places = PyTuple_GET_ITEM(known, 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); ++i) {
    auto slot = static_cast<uint32_t>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(slots, i)));
    if (slot >= b->states[0]->slots.size() || !b->states[0]->slots[slot].program) return declined();
    const GraphSlot& s = b->states[0]->slots[slot];
    PackedValue packed;
    if (s.structure || !pack_value(*s.program, s.buffers, s.position, value, &packed)) return declined();
    b->changes.emplace_back(What::slot, slot);
    b->changes.back().value = std::move(packed);
    if (!i && !note(b, &b->changes.back(), name, value, nullptr)) return Gathered::failed;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i) {
    Gathered result = gather_one(b, PyTuple_GET_ITEM(places, i), value);
    if (result != Gathered::yes) return result;
  }
  return Gathered::yes;
}

Gathered gather_value(Batch* b, PyObject* key, PyObject* value) {
  if (PyUnicode_CheckExact(key)) return gather_named(b, key, value);
  if (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 2) return gather_one(b, key, value);
  return Gathered::declined;
}

// The items that a launch has now, a new reference; null where they are not known, or with an exception.
Ref items_now(Batch* b, PyObject* node, uint32_t index) {
  PyObject* entry = PyDict_GetItemWithError(b->self->record, node);
  if (entry && entry != Py_None) return Ref(Py_NewRef(PyTuple_GET_ITEM(entry, 2)));
  if (PyErr_Occurred() || index >= static_cast<size_t>(PyList_GET_SIZE(b->self->nodes))) return Ref();
  return Ref(PyObject_GetAttrString(PyList_GET_ITEM(b->self->nodes, index), "items"));
}

Gathered gather_launch_sizes(Batch* b, PyObject* node, PyObject* groups, PyObject* given) {
  unsigned long index = PyLong_AsUnsignedLong(node);
  if (PyErr_Occurred() || index >= UINT32_MAX) return declined();
  GraphState* g = b->states[0];
  GraphCommand* c = command_of(g, static_cast<uint32_t>(index));
  if (!c) return Gathered::declined;
  Ref items = given ? Ref(Py_NewRef(given)) : items_now(b, node, static_cast<uint32_t>(index));
  if (!items) return declined();
  Change change(What::sizes, static_cast<uint32_t>(index));
  const Limits& limits = g->lanes[c->lane].device->limits;
  if (!parse_groups(groups, limits, change.sizes.groups) || !parse_items(items.get(), limits, change.sizes.items) ||
      !check_sizes(*c->program, change.sizes.groups, change.sizes.items))
    return declined();
  b->changes.push_back(std::move(change));
  return note(b, &b->changes.back(), node, groups, items.get()) ? Gathered::yes : Gathered::failed;
}

Gathered gather_sizes(Batch* b, PyObject* key, PyObject* value) {
  if (!PyTuple_CheckExact(value)) return Gathered::declined;
  PyObject *groups = value, *items = nullptr;
  if (PyTuple_GET_SIZE(value) == 2) {
    groups = PyTuple_GET_ITEM(value, 0);
    items = PyTuple_GET_ITEM(value, 1);
    if (!PyTuple_CheckExact(groups) || !PyTuple_CheckExact(items) || !PyTuple_GET_SIZE(items))
      return Gathered::declined;
  }
  if (PyLong_CheckExact(key)) return gather_launch_sizes(b, key, groups, items);
  if (!PyUnicode_CheckExact(key)) return Gathered::declined;
  PyObject* nodes = PyDict_GetItemWithError(b->self->sized, key);
  if (!nodes) return declined();
  Ref kept(Py_NewRef(nodes));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); ++i) {
    Gathered result = gather_launch_sizes(b, PyTuple_GET_ITEM(nodes, i), groups, items);
    if (result != Gathered::yes) return result;
  }
  return Gathered::yes;
}

Gathered gather_each(Batch* b, PyObject* given, Gathered (*gather)(Batch*, PyObject*, PyObject*)) {
  PyObject *key, *value;
  Gathered result = Gathered::yes;
  for (Py_ssize_t at = 0; result == Gathered::yes && PyDict_Next(given, &at, &key, &value);) {
    Ref kept_key(Py_NewRef(key)), kept_value(Py_NewRef(value));  // reading a value may run Python
    result = gather(b, key, value);
  }
  return result;
}

// Names and numbers of launches in one call may mean the same launch: then the order counts, and Python sees to it.
bool mixed(PyObject* sizes) {
  PyObject *key, *value;
  bool names = false, numbers = false;
  for (Py_ssize_t at = 0; PyDict_Next(sizes, &at, &key, &value);) {
    names = names || PyUnicode_Check(key);
    numbers = numbers || !PyUnicode_Check(key);
  }
  return names && numbers;
}

// --- carrying it out: runs no Python, and can't fail --------------------
void swap(PyObject** field, Ref* with) {
  PyObject* before = *field;
  *field = with->release();
  *with = Ref(before);
}

void carry_out(Batch* b, Change* change) {
  if (change->what == What::input) {
    GraphInputObject* place = graph_input(PyTuple_GET_ITEM(b->self->places, change->index));
    place->now = change->span;
    place->replaced = true;
    swap(&place->buf, &change->buf);
    swap(&place->handle, &change->handle);
  }
  for (Py_ssize_t i = 0; i < b->count; ++i) {
    GraphState* g = b->states[i];
    if (change->what == What::input) {
      graph_fill_slot(g, change->index, change->span.start);
      swap(&g->slots[change->index].held, &change->kept[i]);
    } else if (change->what == What::slot) {
      graph_fill_slot(g, change->index, change->value.content);
    } else if (change->what == What::one) {
      graph_patch_value(g, *command_of(g, change->index), change->position, change->value);
    } else {
      graph_patch_sizes(g, *command_of(g, change->index), change->sizes);
    }
  }
}

void write_down(PyObject* record, Change* change) {
  if (!change->key) return;
  change->before = Ref(Py_XNewRef(PyDict_GetItemWithError(record, change->key.get())));
  if (PyDict_SetItem(record, change->key.get(), change->entry.get()) < 0) PyErr_Clear();  // it has the key
}
}  // namespace

bool says_anything(PyObject* argument) {
  if (PyTuple_CheckExact(argument)) return PyTuple_GET_SIZE(argument) != 0;
  return argument != Py_None && !(PyDict_CheckExact(argument) && !PyDict_GET_SIZE(argument));
}

Gathered gather(Batch* b, PyObject* const* args) {
  static Gathered (*const how[])(Batch*, PyObject*, PyObject*) = {gather_input, gather_value, gather_sizes};
  for (int i = 0; i < 3; ++i) {
    if (!says_anything(args[i])) continue;
    if (i == 2 && PyDict_GET_SIZE(args[i]) > 1 && mixed(args[i])) return Gathered::declined;
    Gathered result = PyTuple_CheckExact(args[i]) ? gather_inputs(b, args[i]) : gather_each(b, args[i], how[i]);
    if (result != Gathered::yes) return result;
  }
  return Gathered::yes;
}

void carry_out(Batch* b) {
  for (Change& change : b->changes) carry_out(b, &change);
  for (Change& change : b->changes)
    if (change.what == What::input) b->self->order->moved(change.index);
  for (Change& change : b->changes) write_down(b->self->record, &change);
}

}  // namespace hcq
