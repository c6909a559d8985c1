// A reader of plain JSON headers of safetensors (the format's README, "Format"; JSON by RFC 8259). What is unusual,
// allowed or not, it leaves to hcq.formats.safetensors: escapes in texts, numbers that are not whole, members that are
// missing, more or twice. So it only takes what that would take, and says nothing of what is wrong.
#include "formats/header.hpp"

#include <cstring>
#include <string>

namespace nb = nanobind;

namespace hcq {

namespace {
constexpr int kMostDimensions = 64;

struct Text {
  const char* data = nullptr;
  size_t size = 0;
  bool is(const char* other) const { return size == std::strlen(other) && std::memcmp(data, other, size) == 0; }
};

class Reader {
 public:
  Reader(const char* data, size_t size) : at_(data), end_(data + size) {}

  void space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  // The next character is c, and passed.
  bool take(char c) {
    space();
    if (at_ >= end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    space();
    return at_ == end_;
  }
  bool text(Text* out) {
    if (!take('"')) return false;
    out->data = at_;
    for (; at_ < end_; ++at_) {
      auto c = static_cast<unsigned char>(*at_);
      if (c == '"') {
        out->size = static_cast<size_t>(at_ - out->data);
        ++at_;
        return true;
      }
      if (c == '\\' || c < 0x20) return false;
    }
    return false;
  }
  // A whole number below 2^63.
  bool count(int64_t* out) {
    space();
    const char* first = at_;
    uint64_t value = 0;
    for (; at_ < end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      if (at_ - first >= 19) return false;
      value = value * 10 + static_cast<uint64_t>(*at_ - '0');
    }
    if (at_ == first || (*first == '0' && at_ - first > 1) || value > INT64_MAX) return false;
    *out = static_cast<int64_t>(value);
    return true;  // a fraction or an exponent would be no comma or bracket
  }
  // Numbers in brackets; how many, -1 where it isn't that.
  int counts(int64_t* out, int most) {
    if (!take('[')) return -1;
    if (take(']')) return 0;
    for (int n = 0; n < most;) {
      if (!count(&out[n++])) return -1;
      if (take(']')) return n;
      if (!take(',')) return -1;
    }
    return -1;
  }

 private:
  const char *at_, *end_;
};

// A new object, or the exception that is set.
nb::object owned(PyObject* o) {
  if (!o) throw nb::python_error();
  return nb::steal(o);
}

// A new text; what is not UTF-8 raises, and the caller takes it for unusual.
nb::object unicode(const Text& text) {
  return owned(PyUnicode_DecodeUTF8(text.data, static_cast<Py_ssize_t>(text.size), nullptr));
}

bool read_texts(Reader& reader, nb::dict& into) {
  if (!reader.take('{')) return false;
  if (reader.take('}')) return true;
  for (size_t n = 1;; ++n) {
    Text key, value;
    if (!reader.text(&key) || !reader.take(':') || !reader.text(&value)) return false;
    into[unicode(key)] = unicode(value);
    if (into.size() != n) return false;  // twice
    if (reader.take('}')) return true;
    if (!reader.take(',')) return false;
  }
}

struct Tensor {
  Text type;
  int64_t shape[kMostDimensions];
  int dimensions = -1;
  int64_t offsets[2];
};

bool read_tensor(Reader& reader, Tensor* out) {
  bool placed = false;
  if (!reader.take('{')) return false;
  for (int member = 0; member < 3; ++member) {
    Text key;
    if ((member && !reader.take(',')) || !reader.text(&key) || !reader.take(':')) return false;
    if (key.is("dtype") && !out->type.data) {
      if (!reader.text(&out->type)) return false;
    } else if (key.is("shape") && out->dimensions < 0) {
      if ((out->dimensions = reader.counts(out->shape, kMostDimensions)) < 0) return false;
    } else if (key.is("data_offsets") && !placed) {
      placed = true;
      if (reader.counts(out->offsets, 2) != 2) return false;
    } else {
      return false;
    }
  }
  return reader.take('}');
}

// The names are kept in a set to find one that occurs twice.
bool read(Reader& reader, nb::list& found, nb::dict& metadata) {
  if (!reader.take('{')) return false;
  if (reader.take('}')) return reader.at_end();
  nb::object names = owned(PySet_New(nullptr));
  nb::object type;
  Text known;
  bool has_metadata = false;
  auto number = [](int64_t value) { return owned(PyLong_FromLongLong(value)); };
  for (Py_ssize_t n = 1;; ++n) {
    Text key;
    if (!reader.text(&key) || !reader.take(':')) return false;
    if (key.is("__metadata__")) {
      if (has_metadata || !read_texts(reader, metadata)) return false;
      has_metadata = true;
    } else {
      Tensor tensor;
      if (!read_tensor(reader, &tensor)) return false;
      nb::object name = unicode(key);
      if (PySet_Add(names.ptr(), name.ptr())) throw nb::python_error();
      if (PySet_GET_SIZE(names.ptr()) + has_metadata != n) return false;
      if (!type || known.size != tensor.type.size || std::memcmp(known.data, tensor.type.data, known.size) != 0) {
        known = tensor.type;
        type = unicode(known);
      }
      nb::object shape = owned(PyTuple_New(tensor.dimensions));
      for (int i = 0; i < tensor.dimensions; ++i)
        PyTuple_SET_ITEM(shape.ptr(), i, number(tensor.shape[i]).release().ptr());
      found.append(name);
      found.append(type);
      found.append(shape);
      found.append(number(tensor.offsets[0]));
      found.append(number(tensor.offsets[1]));
    }
    if (reader.take('}')) return reader.at_end();
    if (!reader.take(',')) return false;
  }
}

nb::object safetensors_header(nb::bytes text) {
  Reader reader(text.c_str(), text.size());
  nb::list found;
  nb::dict metadata;
  try {
    if (text.size() && text.c_str()[0] == '{' && read(reader, found, metadata)) return nb::make_tuple(found, metadata);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_UnicodeDecodeError)) throw;
  }
  return nb::none();
}
}  // namespace

void bind_formats(nb::module_& m) {
  m.def("safetensors_header", safetensors_header, nb::arg("text"),
        "The tensors of a plain header, five items each (name, type, shape, first byte, end), and its metadata; None "
        "for a header with anything unusual in it.");
}

}  // namespace hcq
