// _native.GraphChanges: the inputs, values and sizes that replays of one graph have changed.
#include <new>

#include "python/graph_batch.hpp"

namespace hcq {

namespace {
PyTypeObject* Changes_Type;

ChangesObject* cast(PyObject* o) { return reinterpret_cast<ChangesObject*>(o); }

PyObject* in_order_of_recording(ChangesObject* self) { return Py_NewRef(self->order->holds() ? Py_False : Py_True); }

// take(inputs, vals, sizes)
PyObject* take(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  ChangesObject* self = cast(object);
  if (count != 3) return PyErr_Format(PyExc_TypeError, "take(inputs, vals, sizes)");
  Py_ssize_t most = 0;
  for (int i = 0; i < 3; ++i) {
    if (!says_anything(args[i])) continue;
    bool sequence = !i && PyTuple_CheckExact(args[i]);
    if (!sequence && !PyDict_CheckExact(args[i])) Py_RETURN_NONE;
    most += sequence ? PyTuple_GET_SIZE(args[i]) : PyDict_GET_SIZE(args[i]);
  }
  Batch b(self, says_anything(args[1]) || says_anything(args[2]));
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
  carry_out(&b);
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
