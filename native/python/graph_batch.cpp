// _native.GraphInput: what stands for one input of a graph now; _native.GraphChanges: the inputs, values and sizes that
// one replay changes, checked and put into the commands in one call. What is not plain (mistakes, memory of drivers in
// Python, other sequences than tuples) is declined with nothing changed: hcq.graph.changes does it then, or says what
// is wrong.
#include <algorithm>
#include <new>

#include "memory/memory.hpp"
#include "python/graph.hpp"
#include "python/graph_input.hpp"

namespace hcq {

namespace {
PyTypeObject* Changes_Type;

constexpr size_t kMostSpare = 256;
constexpr Py_ssize_t kMostCommands = 2;  // by the order of memory, and in that of recording

enum class What : uint8_t { input, slot, one, sizes };

// Fields are swapped with those that they replace, so that nothing is let go of before all is done.
struct Change {
  Change(What kind, uint32_t number) : what(kind), index(number) {}
  What what;
  uint32_t index;         // a slot, or a node
  uint32_t position = 0;  // of a launch's value
  PackedValue value{};    // of a slot: content alone
  Span span{};            // of an input
  Sizes sizes{};
  Ref buf, handle, kept[kMostCommands];
  Ref key, entry, before;  // of the record
};

struct ChangesObject {
  PyObject_HEAD PyObject* places;  // tuple of GraphInput, by slot
  PyObject* by_name;               // dict: name to slot
  PyObject* nodes;                 // list
  PyObject* record;                // dict: what values and sizes are that are no longer as captured, with `when`
  PyObject* values;                // dict: name to (slots, ((node, position), ...))
  PyObject* sized;                 // dict: name to nodes
  PyObject* commands;              // tuple of GraphCommands; empty: everything is declined
  InputOrder* order;
  uint64_t when;               // counts batches and notes
  std::vector<Change>* spare;  // room for the next batch
};

ChangesObject* cast(PyObject* o) { return reinterpret_cast<ChangesObject*>(o); }

enum class Gathered : uint8_t { yes, declined, failed };

struct Batch {
  Batch(ChangesObject* of, bool fewer) : self(of), count(PyTuple_GET_SIZE(of->commands)), smaller(fewer) {
    changes.swap(*of->spare);  // a batch within this one, in a finalizer, has room of its own
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    changes.clear();
    if (changes.capacity() <= kMostSpare) changes.swap(*self->spare);
  }
  ChangesObject* self;
  GraphState* states[kMostCommands];
  Py_ssize_t count;
  bool smaller;  // fewer bytes may do: values or sizes change along
  std::vector<Change> changes;
};

Gathered declined() {
  PyErr_Clear();
  return Gathered::declined;
}

// --- gathering: may run Python, changes nothing --------------------
Gathered gather_input(Batch* b, PyObject* name, PyObject* buf) {
  PyObject* at = PyDict_GetItemWithError(b->self->by_name, name);
  if (!at) return declined();
  auto slot = static_cast<uint32_t>(PyLong_AsUnsignedLong(at));
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

Gathered gather_one(Batch* b, PyObject* place, PyObject* value) {
  PyObject *first = PyTuple_GET_ITEM(place, 0), *second = PyTuple_GET_ITEM(place, 1);
  if (!PyLong_CheckExact(first) || !PyLong_CheckExact(second)) return Gathered::declined;
  unsigned long node = PyLong_AsUnsignedLong(first), position = PyLong_AsUnsignedLong(second);
  if (PyErr_Occurred() || node >= UINT32_MAX) return declined();
  GraphCommand* c = command_of(b->states[0], static_cast<uint32_t>(node));
  if (!c || position >= c->slots.size()) return Gathered::declined;
  PackedValue packed;
  if (!pack_value(*c->program, c->buffers, position, value, &packed)) return declined();
  b->changes.emplace_back(What::one, static_cast<uint32_t>(node));
  b->changes.back().position = static_cast<uint32_t>(position);
  b->changes.back().value = packed;
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
    if (!pack_value(*s.program, s.buffers, s.position, value, &packed)) return declined();
    b->changes.emplace_back(What::slot, slot);
    b->changes.back().value = packed;
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

// --- the call --------------------
PyObject* in_order_of_recording(ChangesObject* self) { return Py_NewRef(self->order->holds() ? Py_False : Py_True); }

bool given(PyObject* argument) {
  return argument != Py_None && !(PyDict_CheckExact(argument) && !PyDict_GET_SIZE(argument));
}

Gathered gather(Batch* b, PyObject* const* args) {
  static Gathered (*const how[])(Batch*, PyObject*, PyObject*) = {gather_input, gather_value, gather_sizes};
  for (int i = 0; i < 3; ++i) {
    if (!given(args[i])) continue;
    if (i == 2 && PyDict_GET_SIZE(args[i]) > 1 && mixed(args[i])) return Gathered::declined;
    Gathered result = gather_each(b, args[i], how[i]);
    if (result != Gathered::yes) return result;
  }
  return Gathered::yes;
}

// take(inputs, vals, sizes)
PyObject* take(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  ChangesObject* self = cast(object);
  if (count != 3) return PyErr_Format(PyExc_TypeError, "take(inputs, vals, sizes)");
  Py_ssize_t most = 0;
  for (int i = 0; i < 3; ++i) {
    if (!given(args[i])) continue;
    if (!PyDict_CheckExact(args[i])) Py_RETURN_NONE;
    most += PyDict_GET_SIZE(args[i]);
  }
  Batch b(self, given(args[1]) || given(args[2]));
  if (!b.count) Py_RETURN_NONE;
  Ref commands(Py_NewRef(self->commands));
  for (Py_ssize_t i = 0; i < b.count; ++i)
    if (!(b.states[i] = graph_usable(PyTuple_GET_ITEM(commands.get(), i)))) return nullptr;
  try {
    b.changes.reserve(static_cast<size_t>(most));
    for (uint64_t seen = self->when + 1; seen != self->when;) {
      seen = self->when;
      b.changes.clear();
      Gathered result = gather(&b, args);
      if (result == Gathered::declined) Py_RETURN_NONE;
      if (result == Gathered::failed) return nullptr;
      // Python may have run, in numbers and finalizers, and changed this graph: then once more.
      if (self->commands != commands.get()) Py_RETURN_NONE;
    }
    for (Py_ssize_t i = 0; i < b.count; ++i) graph_make_room(b.states[i], b.changes.size());
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  self->when += b.changes.size() + 1;
  for (Change& change : b.changes) carry_out(&b, &change);
  for (Change& change : b.changes)
    if (change.what == What::input) self->order->moved(change.index);
  for (Change& change : b.changes) write_down(self->record, &change);
  b.changes.clear();  // what was replaced goes here: finalizers may run
  return in_order_of_recording(self);
}

// Whether the order of memory holds, from scratch: inputs were changed one by one.
PyObject* look(PyObject* object, PyObject*) {
  cast(object)->order->unknown();
  return in_order_of_recording(cast(object));
}

PyObject* note_one(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  ChangesObject* self = cast(object);
  if (count != 2 && count != 3) return PyErr_Format(PyExc_TypeError, "note(key, first, second=None)");
  Ref when(PyLong_FromUnsignedLongLong(++self->when));
  if (!when) return nullptr;
  Ref entry(count == 3 ? PyTuple_Pack(3, when.get(), args[1], args[2]) : PyTuple_Pack(2, when.get(), args[1]));
  if (!entry || PyDict_SetItem(self->record, args[0], entry.get()) < 0) return nullptr;
  Py_RETURN_NONE;
}

// use(commands, ordered): what changes go to.
PyObject* use(PyObject* object, PyObject* args) {
  PyObject* commands;
  int ordered;
  if (!PyArg_ParseTuple(args, "O!p", &PyTuple_Type, &commands, &ordered)) return nullptr;
  if (PyTuple_GET_SIZE(commands) > kMostCommands) return PyErr_Format(PyExc_ValueError, "too many commands");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(commands); ++i) {
    PyObject* one = PyTuple_GET_ITEM(commands, i);
    GraphState* g = graph_check(one) ? graph_usable(one) : nullptr;
    if (PyErr_Occurred()) return nullptr;
    if (!g || !g->sealed || g->slots.size() < static_cast<size_t>(PyTuple_GET_SIZE(cast(object)->places)))
      return PyErr_Format(PyExc_TypeError, "sealed GraphCommands with a slot for each input are expected");
  }
  PyObject* before = cast(object)->commands;
  cast(object)->commands = Py_NewRef(commands);
  cast(object)->order->ordered = ordered != 0;
  Py_DECREF(before);
  Py_RETURN_NONE;
}

// fix(spans): memory that is no input's, sorted, apart from each other.
PyObject* fix(PyObject* object, PyObject* spans) {
  if (!PyList_Check(spans)) return PyErr_Format(PyExc_TypeError, "a list of (start, end) is expected");
  try {
    std::vector<Span> fixed;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(spans); ++i) {
      unsigned long long start;
      PyObject* end;  // may be 2**64
      if (!PyArg_ParseTuple(PyList_GET_ITEM(spans, i), "KO", &start, &end)) return nullptr;
      uint64_t last = PyLong_AsUnsignedLongLong(end);
      if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return nullptr;
        PyErr_Clear();
        last = UINT64_MAX;
      }
      fixed.push_back({start, last});
    }
    cast(object)->order->fix(std::move(fixed));
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}

// --- life --------------------
PyObject* changes_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"places", "by_name", "nodes", nullptr};
  PyObject *places, *by_name, *nodes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!", const_cast<char**>(names), &PyTuple_Type, &places,
                                   &PyDict_Type, &by_name, &PyList_Type, &nodes))
    return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i)
    if (!graph_input_check(PyTuple_GET_ITEM(places, i)))
      return PyErr_Format(PyExc_TypeError, "places are GraphInputs, not %R", PyTuple_GET_ITEM(places, i));
  auto* self = cast(type->tp_alloc(type, 0));
  Ref owned(reinterpret_cast<PyObject*>(self));
  if (!self) return nullptr;
  self->places = Py_NewRef(places);
  self->by_name = Py_NewRef(by_name);
  self->nodes = Py_NewRef(nodes);
  self->record = PyDict_New();
  self->values = PyDict_New();
  self->sized = PyDict_New();
  self->commands = PyTuple_New(0);
  if (!self->record || !self->values || !self->sized || !self->commands) return nullptr;
  try {
    self->order = new InputOrder(places);
    self->spare = new std::vector<Change>;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  return owned.release();
}

int changes_traverse(PyObject* object, visitproc visit, void* arg) {
  ChangesObject* self = cast(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->places);
  Py_VISIT(self->by_name);
  Py_VISIT(self->nodes);
  Py_VISIT(self->record);
  Py_VISIT(self->values);
  Py_VISIT(self->sized);
  Py_VISIT(self->commands);
  return 0;
}

void changes_dealloc(PyObject* object) {
  ChangesObject* self = cast(object);
  PyObject_GC_UnTrack(object);
  delete self->order;
  delete self->spare;
  for (PyObject* field :
       {self->places, self->by_name, self->nodes, self->record, self->values, self->sized, self->commands})
    Py_XDECREF(field);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

template <typename F>
PyCFunction method(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(f));
}

PyMethodDef methods[] = {
    {"take", method(take), METH_FASTCALL,
     "take(inputs, vals, sizes)\n--\n\nChange them for the replays that follow. Whether commands must go in the order "
     "of "
     "recording\nfrom now on; None where nothing was changed, since something is not plain or not right."},
    {"look", look, METH_NOARGS, "look()\n--\n\nWhether commands must go in the order of recording as inputs are now."},
    {"note", method(note_one), METH_FASTCALL, "note(key, first, second=None)\n--\n\nAn entry of the record."},
    {"use", use, METH_VARARGS,
     "use(commands, ordered)\n--\n\nWhat changes go to; `ordered`: commands run in the order of recording anyway."},
    {"fix", fix, METH_O, "fix(spans)\n--\n\nMemory that is no input's: a list of (start, end), sorted and apart."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"record", T_OBJECT_EX, offsetof(ChangesObject, record), READONLY,
     "What is no longer as captured: name or (node, position) to (when, value), node to (when, groups, items), or "
     "None."},
    {"values", T_OBJECT_EX, offsetof(ChangesObject, values), READONLY,
     "What values names stand for: (slots, ((node, position), ...))."},
    {"sized", T_OBJECT_EX, offsetof(ChangesObject, sized), READONLY, "What launches a program's name stands for."},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(changes_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(changes_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(changes_traverse)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("GraphChanges(places, by_name, nodes)\n--\n\nWhat replays change "
                                                     "of a graph. One thread at a time.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.GraphChanges", sizeof(ChangesObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};
}  // namespace

int init_graph_changes(PyObject* module) {
  Changes_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Changes_Type ? PyModule_AddType(module, Changes_Type) : -1;
}

}  // namespace hcq
