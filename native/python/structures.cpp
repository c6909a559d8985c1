// The bytes of structures by value (structures.hpp).
#include "python/structures.hpp"

#include <algorithm>
#include <cstring>

#include "python/arguments.hpp"
#include "python/values.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
// What in a format of the buffer protocol (struct's words, between them names in colons) no kernel reads, or nothing.
const char* foreign(const char* format) {
  bool named = false;
  for (; format && *format; ++format) {
    if (*format == ':') named = !named;
    if (named) continue;
    if (*format == 'O') return "Python objects";
    if (*format == '>' || *format == '!') return "big-endian numbers";
  }
  return nullptr;
}

// The bytes of a structure: of what has the buffer protocol, contiguous, or of a NumPy scalar.
class Bytes {
 public:
  explicit Bytes(PyObject* v) {
    for (int asked : {PyBUF_ND | PyBUF_FORMAT, PyBUF_SIMPLE}) {  // some have no word for what they hold
      taken_ = PyObject_CheckBuffer(v) && PyObject_GetBuffer(v, &view_, asked) == 0;
      if (taken_) {
        data = view_.buf;
        size = view_.len;
        wrong = foreign(view_.format);
        return;
      }
      PyErr_Clear();
    }
    Ref dimensions(PyObject_HasAttrString(v, "dtype") ? PyObject_GetAttrString(v, "ndim") : nullptr);
    if (dimensions && PyLong_Check(dimensions.get()) && PyLong_AsLong(dimensions.get()) == 0)
      copied_ = Ref(PyObject_CallMethod(v, "tobytes", nullptr));  // a scalar of a type that buffers have no word for
    PyErr_Clear();
    if (!copied_ || !PyBytes_Check(copied_.get())) return;
    data = PyBytes_AS_STRING(copied_.get());
    size = PyBytes_GET_SIZE(copied_.get());
  }
  ~Bytes() {
    if (taken_) PyBuffer_Release(&view_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  const void* data = nullptr;
  Py_ssize_t size = -1;  // there are none
  const char* wrong = nullptr;

 private:
  Py_buffer view_{};
  bool taken_ = false;
  Ref copied_;
};

nb::tuple structure_bytes(nb::handle value) {
  Bytes bytes(value.ptr());
  nb::object wrong = bytes.wrong ? nb::object(nb::str(bytes.wrong)) : nb::none();
  if (bytes.size < 0) return nb::make_tuple(nb::none(), wrong);
  return nb::make_tuple(nb::bytes(bytes.data, static_cast<size_t>(bytes.size)), wrong);
}
}  // namespace

bool put_structure(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out) {
  Bytes bytes(v);
  if (bytes.size != p.size)
    return refuse(value_words(program, index) + ": expected a structure of " + std::to_string(p.size) +
                  " bytes, as bytes, a NumPy record or a ctypes structure, got " +
                  (bytes.size < 0 ? shown(v) : std::to_string(bytes.size) + " bytes (" + Py_TYPE(v)->tp_name + ")"));
  if (bytes.wrong)
    return refuse(value_words(program, index) + ": a structure with " + bytes.wrong +
                  " in it, which no kernel reads: " + shown(v));
  std::memcpy(out, bytes.data, p.size);
  return true;
}

Ref kept_values(const Program& program, size_t buffers, Ref vals) {
  Ref kept;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(vals.get()); ++i) {
    const Param* p = value_param(program, buffers, static_cast<size_t>(i));
    PyObject* v = PyTuple_GET_ITEM(vals.get(), i);
    if (!p || p->kind != ParamKind::structure || PyBytes_CheckExact(v)) continue;
    if (!kept) kept = Ref(PySequence_List(vals.get()));
    Bytes bytes(v);
    Ref held(PyBytes_FromStringAndSize(static_cast<const char*>(bytes.data), std::max<Py_ssize_t>(bytes.size, 0)));
    if (!kept || !held || PyList_SetItem(kept.get(), i, held.release()) < 0) return Ref();
  }
  return kept ? Ref(PySequence_Tuple(kept.get())) : std::move(vals);
}

void init_structures(nb::module_& m) {
  m.def("structure_bytes", structure_bytes, nb::arg("value").none(),
        "A structure by value: its bytes, None where it has none, and what in it no kernel reads, or None.");
}

}  // namespace hcq
