// _native.GraphInput, and InputOrder.
#include "python/graph_input.hpp"

#include <algorithm>

#include "python/common.hpp"

namespace hcq {

namespace {
PyTypeObject* Input_Type;

constexpr uint32_t kFewMoves = 4;  // for more, looking at all of them at once takes less

bool meet(const Span& a, const Span& b) { return a.start < b.end && b.start < a.end; }

PyObject* pair(const Span& span) {
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(span.start), static_cast<unsigned long long>(span.end));
}

// GraphInput(buf, handle, device, start, end)
PyObject* input_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *buf, *handle, *device;
  unsigned long long start, end;
  if (!PyArg_ParseTuple(args, "OOOKK", &buf, &handle, &device, &start, &end)) return nullptr;
  if (device != Py_None && !PyUnicode_Check(device))
    return PyErr_Format(PyExc_TypeError, "a device is named by a str, not %R", device);
  auto* self = graph_input(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->buf = Py_NewRef(buf);
  self->handle = Py_NewRef(handle);
  self->device = Py_NewRef(device);
  self->captured = self->now = {start, end};
  return reinterpret_cast<PyObject*>(self);
}

PyObject* take(PyObject* object, PyObject* args) {
  PyObject *buf, *handle;
  unsigned long long start, end;
  if (!PyArg_ParseTuple(args, "OOKK", &buf, &handle, &start, &end)) return nullptr;
  GraphInputObject* self = graph_input(object);
  Ref before(self->buf), handle_before(self->handle);
  self->buf = Py_NewRef(buf);
  self->handle = Py_NewRef(handle);
  self->now = {start, end};
  self->replaced = true;
  Py_RETURN_NONE;
}

PyObject* get_captured(PyObject* object, void*) { return pair(graph_input(object)->captured); }
PyObject* get_now(PyObject* object, void*) { return pair(graph_input(object)->now); }
PyObject* get_nbytes(PyObject* object, void*) {
  const Span& captured = graph_input(object)->captured;
  return PyLong_FromUnsignedLongLong(captured.end - captured.start);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(graph_input(object)->buf);
  Py_VISIT(graph_input(object)->handle);
  return 0;
}

void dealloc(PyObject* object) {
  GraphInputObject* self = graph_input(object);
  PyObject_GC_UnTrack(object);
  Py_XDECREF(self->buf);
  Py_XDECREF(self->handle);
  Py_XDECREF(self->device);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMethodDef methods[] = {{"take", take, METH_VARARGS, "take(buf, handle, start, end)\n--\n\nWhat it is from now on."},
                         {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"buf", T_OBJECT_EX, offsetof(GraphInputObject, buf), READONLY, "The Buffer or handle that it is now."},
    {"handle", T_OBJECT_EX, offsetof(GraphInputObject, handle), READONLY,
     "What that one's memory was when it was given: it is the graph's, be the Buffer deallocated since."},
    {"device", T_OBJECT_EX, offsetof(GraphInputObject, device), READONLY, "Where it was captured; None for handles."},
    {"copied", T_ULONGLONG, offsetof(GraphInputObject, copied), 0, "Bytes from its start that copies use."},
    {"names", T_UINT, offsetof(GraphInputObject, names), 0, "How many names it has."},
    {"by_host", T_BOOL, offsetof(GraphInputObject, by_host), 0, "Whether copies by the host use it."},
    {"replaced", T_BOOL, offsetof(GraphInputObject, replaced), READONLY, "Whether it ever was."},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {{"captured", get_captured, nullptr, "(start, end) as captured.", nullptr},
                        {"now", get_now, nullptr, "(start, end) now.", nullptr},
                        {"nbytes", get_nbytes, nullptr, "How large it was when captured.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(input_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_getset, getset},
                       {Py_tp_doc, const_cast<char*>("GraphInput(buf, handle, device, start, end)\n--\n\nA buffer of a "
                                                     "graph that replays may replace.")},
                       {0, nullptr}};
PyType_Spec spec = {"hcq._native.GraphInput", sizeof(GraphInputObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                    slots};
}  // namespace

bool graph_input_check(PyObject* object) { return Py_TYPE(object) == Input_Type; }

InputOrder::InputOrder(PyObject* places) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i) places_.push_back(graph_input(PyTuple_GET_ITEM(places, i)));
  sorted_.resize(places_.size());
}

void InputOrder::fix(std::vector<Span> fixed) {
  fixed_ = std::move(fixed);
  known_ = false;
}

bool InputOrder::meets_fixed(const Span& span) const {
  auto first = std::upper_bound(fixed_.begin(), fixed_.end(), span.start,
                                [](uint64_t start, const Span& other) { return start < other.end; });
  return first != fixed_.end() && meet(*first, span);
}

bool InputOrder::meets_any(uint32_t slot) const {
  const Span& span = places_[slot]->now;
  for (size_t i = 0; i < places_.size(); ++i)
    if (i != slot && meet(places_[i]->now, span)) return true;
  return meets_fixed(span);
}

void InputOrder::moved(uint32_t slot) {
  if (ordered || !known_) return;
  if (++recent_ > kFewMoves || !apart_)
    known_ = false;
  else
    apart_ = !meets_any(slot);
}

bool InputOrder::all_apart() {
  for (size_t i = 0; i < places_.size(); ++i) sorted_[i] = places_[i]->now;
  std::sort(sorted_.begin(), sorted_.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  uint64_t reach = 0;
  for (const Span& span : sorted_) {
    if (span.start == span.end) continue;
    if (span.start < reach || meets_fixed(span)) return false;
    reach = std::max(reach, span.end);
  }
  return true;
}

bool InputOrder::as_captured() const {
  return std::all_of(places_.begin(), places_.end(), [](auto* place) { return place->now == place->captured; });
}

bool InputOrder::holds() {
  recent_ = 0;
  if (ordered) return true;
  if (!known_) apart_ = all_apart();
  known_ = true;
  return apart_ || as_captured();
}

int init_graph_input(PyObject* module) {
  Input_Type = reinterpret_cast<PyTypeObject*>(PyType_FromModuleAndSpec(module, &spec, nullptr));
  return Input_Type ? PyModule_AddType(module, Input_Type) : -1;
}

}  // namespace hcq
