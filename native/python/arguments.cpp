// Packing of launch arguments (arguments.hpp); their sizes: sizes.cpp.
#include "python/arguments.hpp"

#include <cmath>
#include <cstring>

#include "memory/memory.hpp"

namespace hcq {

bool refuse(const std::string& message) {
  raise("LaunchError", message);
  return false;
}

std::string shown(PyObject* o) {
  Ref r(PyObject_Repr(o));
  const char* s = r ? PyUnicode_AsUTF8(r.get()) : nullptr;
  if (!s) PyErr_Clear();
  return s ? std::string(s).substr(0, 100) : "?";
}

namespace {
const char* kind_name(ParamKind k) {
  switch (k) {
    case ParamKind::pointer:
      return "pointer";
    case ParamKind::i8:
      return "int8";
    case ParamKind::u8:
      return "uint8";
    case ParamKind::i16:
      return "int16";
    case ParamKind::u16:
      return "uint16";
    case ParamKind::i32:
      return "int32";
    case ParamKind::u32:
      return "uint32";
    case ParamKind::i64:
      return "int64";
    case ParamKind::u64:
      return "uint64";
    case ParamKind::f16:
      return "float16";
    case ParamKind::bf16:
      return "bfloat16";
    case ParamKind::f32:
      return "float32";
    case ParamKind::f64:
      return "float64";
    case ParamKind::boolean:
      return "bool";
    case ParamKind::bits8:
      return "8-bit integer";
    case ParamKind::bits16:
      return "16-bit integer";
    case ParamKind::bits32:
      return "32-bit integer";
    case ParamKind::bits64:
      return "64-bit integer";
  }
  return "?";
}

bool is_signless(ParamKind k) { return k >= ParamKind::bits8 && k <= ParamKind::bits64; }

bool is_floating(ParamKind k) {
  return k == ParamKind::f16 || k == ParamKind::bf16 || k == ParamKind::f32 || k == ParamKind::f64;
}

std::string where(const Program& program, size_t index) {
  std::string text = program.name + ": value " + std::to_string(index - program.pointers);
  if (index < program.params.size() && !program.params[index].name.empty())
    text += " (" + program.params[index].name + ")";
  return text;
}

std::string counted(size_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

// Round to nearest even from a double, in one step: by way of a float rounded to odd.
uint16_t to_bfloat16(double v) {
  float f = static_cast<float>(v);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (std::isnan(v)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  if (std::isinf(f)) return static_cast<uint16_t>(bits >> 16);
  if (static_cast<double>(f) != v) {
    if (std::fabs(static_cast<double>(f)) > std::fabs(v)) --bits;
    bits |= 1;
  }
  uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>(rounded >> 16);
}

bool put_double(const Program& program, size_t index, const Param& p, double v, bool exact, uint8_t* out) {
  bool overflow = false, inexact = false;
  switch (p.kind) {
    case ParamKind::f64:
      std::memcpy(out, &v, 8);
      break;
    case ParamKind::f32: {
      float f = static_cast<float>(v);
      overflow = std::isinf(f) && !std::isinf(v);
      inexact = static_cast<double>(f) != v;
      std::memcpy(out, &f, 4);
      break;
    }
    case ParamKind::f16: {
#if PY_VERSION_HEX >= 0x030B0000
      int r = PyFloat_Pack2(v, reinterpret_cast<char*>(out), 1);
#endif
      if (r < 0) {
        PyErr_Clear();
        overflow = true;
      } else {
        inexact = PyFloat_Unpack2(reinterpret_cast<char*>(out), 1) != v;
      }
      break;
    }
    default: {
      uint16_t b = to_bfloat16(v);
      overflow = (b & 0x7fff) == 0x7f80 && !std::isinf(v);
      uint32_t wide = static_cast<uint32_t>(b) << 16;
      float f;
      std::memcpy(&f, &wide, 4);
      inexact = static_cast<double>(f) != v;
      std::memcpy(out, &b, 2);
    }
  }
  if (overflow)
    return refuse(where(program, index) + ": " + std::to_string(v) + " is too large for " + kind_name(p.kind));
  if (exact && inexact)
    return refuse(where(program, index) + ": the whole number " + std::to_string(v) + " is not exact in " +
                  kind_name(p.kind) + "; pass a float to have it rounded");
  return true;
}

bool put_int(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out) {
  if (is_floating(p.kind)) {
    double d = PyLong_AsDouble(v);
    bool exact = !(d == -1.0 && PyErr_Occurred());
    if (exact) {
      Ref back(PyLong_FromDouble(d));
      exact = back && PyObject_RichCompareBool(back.get(), v, Py_EQ) == 1;
    }
    if (!exact) {
      PyErr_Clear();
      return refuse(where(program, index) + ": " + shown(v) + " is not exact in " + kind_name(p.kind) +
                    "; pass a float to have it rounded");
    }
    return put_double(program, index, p, d, true, out);
  }
  int overflow = 0;
  long long s = PyLong_AsLongLongAndOverflow(v, &overflow);
  uint64_t u = static_cast<uint64_t>(s);
  bool fits = overflow == 0;
  switch (p.kind) {
    case ParamKind::i8:
      fits = fits && s >= INT8_MIN && s <= INT8_MAX;
      break;
    case ParamKind::u8:
      fits = fits && s >= 0 && s <= UINT8_MAX;
      break;
    case ParamKind::bits8:
      fits = fits && s >= INT8_MIN && s <= UINT8_MAX;
      break;
    case ParamKind::bits16:
      fits = fits && s >= INT16_MIN && s <= UINT16_MAX;
      break;
    case ParamKind::i16:
      fits = fits && s >= INT16_MIN && s <= INT16_MAX;
      break;
    case ParamKind::u16:
      fits = fits && s >= 0 && s <= UINT16_MAX;
      break;
    case ParamKind::i32:
    case ParamKind::u32:
    case ParamKind::bits32:
      fits = fits && s >= INT32_MIN && s <= static_cast<long long>(UINT32_MAX);
      break;
    case ParamKind::boolean:
      fits = fits && (s == 0 || s == 1);
      break;
    case ParamKind::u64:
    case ParamKind::bits64:
      if (overflow > 0) {
        u = PyLong_AsUnsignedLongLong(v);
        fits = !PyErr_Occurred();
        PyErr_Clear();
      } else {
        fits = fits && (s >= 0 || p.kind == ParamKind::bits64);
      }
      break;
    default:
      break;
  }
  if (!fits) return refuse(where(program, index) + ": " + shown(v) + " does not fit " + kind_name(p.kind));
  std::memcpy(out, &u, p.size);  // little endian
  return true;
}

// A NumPy scalar of exactly the parameter's type, by its buffer: ten times faster than by its dtype. False, without an
// exception, when it is anything else.
bool put_same_scalar(const Param& p, PyObject* v, uint8_t* out) {
  if (!Py_TYPE(v)->tp_as_buffer || !Py_TYPE(v)->tp_as_buffer->bf_getbuffer) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(v, &view, PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  bool same = false;
  if (view.ndim == 0 && view.format && view.format[0] && !view.format[1] && view.itemsize == p.size) {
    char c = view.format[0];
    bool is_signed = std::strchr("bhilq", c), is_unsigned = std::strchr("BHILQ", c);
    switch (p.kind) {
      case ParamKind::i8:
      case ParamKind::i16:
      case ParamKind::i32:
      case ParamKind::i64:
        same = is_signed;
        break;
      case ParamKind::u8:
      case ParamKind::u16:
      case ParamKind::u32:
      case ParamKind::u64:
        same = is_unsigned;
        break;
      case ParamKind::f16:
      case ParamKind::f32:
      case ParamKind::f64:
        same = c == (p.size == 2 ? 'e' : p.size == 4 ? 'f' : 'd');
        break;
      case ParamKind::boolean:
        same = c == '?';
        break;
      default:
        same = is_signless(p.kind) && (is_signed || is_unsigned);
        break;
    }
    if (same) std::memcpy(out, view.buf, p.size);
  }
  PyBuffer_Release(&view);
  return same;
}

// A NumPy scalar: of the parameter's own type, taken bit for bit.
bool put_scalar(const Program& program, size_t index, const Param* p, PyObject* v, uint8_t* out, uint32_t* size) {
  Ref dtype(PyObject_GetAttrString(v, "dtype"));
  Ref name(dtype ? PyObject_GetAttrString(dtype.get(), "name") : nullptr);
  Ref bytes(name ? PyObject_CallMethod(v, "tobytes", nullptr) : nullptr);
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text || !bytes || !PyBytes_Check(bytes.get())) {
    PyErr_Clear();
    return refuse(where(program, index) + ": expected a number, got " + shown(v));
  }
  Py_ssize_t n = PyBytes_GET_SIZE(bytes.get());
  if (p) {
    bool same = is_signless(p->kind) ? std::strncmp(text, "int", 3) == 0 || std::strncmp(text, "uint", 4) == 0
                                     : std::strcmp(text, kind_name(p->kind)) == 0;
    if (!same || n != p->size)
      return refuse(where(program, index) + ": expected " + kind_name(p->kind) + ", got a NumPy " + text);
    std::memcpy(out, PyBytes_AS_STRING(bytes.get()), p->size);
    return true;
  }
  if (n > 8 || !(text[0] == 'i' || text[0] == 'u' || text[0] == 'b') || std::strcmp(text, "bfloat16") == 0)
    return refuse(where(program, index) +
                  ": the library records no parameter types, so only whole numbers can be passed, not " + text);
  std::memset(out, text[0] == 'i' && (PyBytes_AS_STRING(bytes.get())[n - 1] & 0x80) ? 0xff : 0, 8);
  std::memcpy(out, PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(n));
  *size = 8;
  return true;
}

bool put_value(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out) {
  if (PyLong_Check(v)) return put_int(program, index, p, v, out);
  if (PyFloat_CheckExact(v)) {
    if (!is_floating(p.kind))
      return refuse(where(program, index) + ": expected " + kind_name(p.kind) + ", got the float " + shown(v));
    return put_double(program, index, p, PyFloat_AS_DOUBLE(v), false, out);
  }
  if (put_same_scalar(p, v, out)) return true;
  uint32_t size;
  return put_scalar(program, index, &p, v, out, &size);
}

// A value of a program without recorded types: 8 bytes.
bool put_untyped(const Program& program, size_t index, PyObject* value, uint8_t* slot) {
  if (PyLong_Check(value)) {
    Param p{ParamKind::i32, Access::unknown, 4, 0, ""};
    int64_t wide = 0;
    if (!put_int(program, index, p, value, reinterpret_cast<uint8_t*>(&wide))) return false;
    std::memcpy(slot, &wide, 8);
    return true;
  }
  if (PyFloat_CheckExact(value))
    return refuse(where(program, index) + ": the library records no parameter types, so the float " + shown(value) +
                  " can't be passed");
  uint32_t size;
  return put_scalar(program, index, nullptr, value, slot, &size);
}

bool refuse_buffer(const Program& program, Py_ssize_t i, PyObject* o) {
  PyErr_Clear();
  std::string text = program.name + ": buffer " + std::to_string(i);
  if (PyObject_TypeCheck(o, Buffer_Type)) {
    auto* b = reinterpret_cast<BufferObject*>(o);
    if (!b->buf) return refuse(text + " is not allocated: call allocate() or ensure_allocated() first");
    return refuse(text + " is on " + shown(b->device) + ", which this device can't reach: copy it with hcq.copy");
  }
  return refuse(text + ": expected a Buffer, an HCQBuffer or a NumPy array, got " + Py_TYPE(o)->tp_name);
}

// What a launch does to buffer `i`: as the user says, else as the library does.
bool access_of(const Program& program, Py_ssize_t i, const Arguments* arguments, Access* out) {
  *out = program.typed ? program.params[static_cast<size_t>(i)].access : Access::unknown;
  if (!arguments->accesses || !*arguments->accesses) return true;
  Ref said(PySequence_GetItem(*arguments->accesses, i));
  if (!said) {  // fewer than there are buffers, where the library records no types
    if (!PyErr_ExceptionMatches(PyExc_IndexError)) return false;
    PyErr_Clear();
    *out = Access::unknown;
    return true;
  }
  const char* word = PyUnicode_Check(said.get()) ? PyUnicode_AsUTF8(said.get()) : nullptr;
  PyErr_Clear();
  *out = !word                         ? Access::unknown
         : std::strcmp(word, "r") == 0 ? Access::read
         : std::strcmp(word, "w") == 0 ? Access::write
                                       : Access::both;
  return true;
}

bool address_of(const Program& program, Py_ssize_t i, PyObject* o, uint64_t* out, Arguments* arguments) {
  if (buffer_check(o)) {
    auto* buffer = reinterpret_cast<BufferObject*>(o);
    PyObject* handle = buffer->buf;
    bool closed = buffer->base ? buffer->base->closed : buffer->closed;
    if (!handle || closed || buffer->generation != g_generation || !hcq_buffer_check(handle)) {
      Ref checked(PyObject_GetAttrString(o, "_buf"));  // raises for what is closed or inherited
      if (checked) return refuse_buffer(program, i, o);
      if (PyErr_ExceptionMatches(PyExc_AttributeError)) return refuse_buffer(program, i, o);
      return false;
    }
    if (!program.home.empty() && PyUnicode_CompareWithASCIIString(buffer->device, program.home.c_str()) != 0)
      return refuse_buffer(program, i, o);
    *out = reinterpret_cast<HCQBufferObject*>(handle)->va_addr;
    return true;
  }
  if (hcq_buffer_check(o)) {
    auto* handle = reinterpret_cast<HCQBufferObject*>(o);
    if (handle->generation != g_generation) {
      raise_forked(handle->generation, "an HCQBuffer");
      return false;
    }
    *out = handle->va_addr;
    return true;
  }
  Ref interface(PyObject_GetAttrString(o, "__array_interface__"));
  if (!interface || !PyDict_Check(interface.get())) return refuse_buffer(program, i, o);
  PyObject* data = PyDict_GetItemString(interface.get(), "data");
  PyObject* strides = PyDict_GetItemString(interface.get(), "strides");
  std::string text = program.name + ": array " + std::to_string(i);
  if (strides && strides != Py_None) return refuse(text + " is strided: pass numpy.ascontiguousarray of it");
  if (!data || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2) return refuse_buffer(program, i, o);
  PyObject* type = PyDict_GetItemString(interface.get(), "typestr");
  const char* typestr = type && PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : nullptr;
  if (!typestr) return refuse_buffer(program, i, o);
  if (typestr[0] == '>')
    return refuse(text + " is big-endian (" + typestr + "): pass a.astype(a.dtype.newbyteorder('='))");
  if (typestr[0] && typestr[1] == 'O') return refuse(text + " holds Python objects, which kernels can't work on");
  if (program.kind == EntryKind::elsewhere) {  // the caller copies it there and back
    arguments->arrays = true;
    *out = 0;
    return true;
  }
  Ref kept(Py_NewRef(data));  // what follows may run Python, which may change the dictionary
  arguments->arrays = true;
  int readonly = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
  if (readonly < 0) return false;
  if (readonly) {
    Access access;
    if (!access_of(program, i, arguments, &access)) return false;
    if (access == Access::unknown)
      return refuse(text + " is read-only, and nothing says whether " + program.name +
                    " writes it: pass a writable copy, or say so in program.accesses ('r')");
    if (access != Access::read)
      return refuse(text + " is read-only, and " + program.name + " writes it: pass a writable array");
    // What is declared may be wrong, so the kernel works on a copy, which nobody sees.
    if (!arguments->copies) arguments->copies = Ref(PyList_New(0));
    Ref copy(arguments->copies ? PyObject_CallMethod(o, "tobytes", nullptr) : nullptr);
    if (!copy || PyList_Append(arguments->copies.get(), copy.get()) < 0) return false;
    *out = reinterpret_cast<uint64_t>(PyBytes_AsString(copy.get()));
    return !PyErr_Occurred();
  }
  return parse_u64(PyTuple_GET_ITEM(data, 0), out, "the address of the array");
}
}  // namespace

bool pack_arguments(const Program& program, PyObject* const* buffers, Py_ssize_t count, PyObject* vals,
                    Arguments* out) {
  Ref list;
  PyObject* const* values = nullptr;
  Py_ssize_t value_count = 0;
  if (vals && vals != Py_None) {
    if (PyTuple_CheckExact(vals)) {
      values = &PyTuple_GET_ITEM(vals, 0);
      value_count = PyTuple_GET_SIZE(vals);
    } else {
      list = Ref(PySequence_Tuple(vals));  // a copy of a list: reading a NumPy scalar runs Python
      if (!list) {
        PyErr_Clear();
        return refuse(program.name + ": vals must be a sequence of numbers, got " + shown(vals));
      }
      values = &PyTuple_GET_ITEM(list.get(), 0);
      value_count = PyTuple_GET_SIZE(list.get());
    }
  }
  if (static_cast<uint64_t>(count + value_count + 1) * 8 > kMaxInlineArguments)
    return refuse(program.name + ": " + std::to_string(count + value_count) + " arguments are too many, the limit is " +
                  std::to_string(kMaxInlineArguments / 8 - 1));
  if (program.typed) {
    if (static_cast<uint32_t>(count) != program.pointers)
      return refuse(program.name + " takes " + counted(program.pointers, "buffer") + ", got " + std::to_string(count) +
                    (static_cast<uint32_t>(count) > program.pointers ? ": values go in vals=" : ""));
    size_t wanted = program.params.size() - program.pointers;
    if (static_cast<size_t>(value_count) != wanted)
      return refuse(program.name + " takes " + counted(wanted, "value") + ", got " + std::to_string(value_count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      uint64_t address;
      if (!address_of(program, i, buffers[i], &address, out)) return false;
      std::memcpy(out->bytes + 8 * i, &address, 8);
    }
    for (Py_ssize_t i = 0; i < value_count; ++i) {
      size_t index = static_cast<size_t>(i) + program.pointers;
      const Param& p = program.params[index];
      if (!put_value(program, index, p, values[i], out->bytes + p.offset)) return false;
    }
    out->size = program.kernargs_size;
    return true;
  }
  // No recorded types: a count of slots, then 8 bytes for each argument.
  uint64_t slots = static_cast<uint64_t>(count + value_count);
  std::memcpy(out->bytes, &slots, 8);
  uint8_t* slot = out->bytes + 8;
  for (Py_ssize_t i = 0; i < count; ++i, slot += 8) {
    uint64_t address;
    if (!address_of(program, i, buffers[i], &address, out)) return false;
    std::memcpy(slot, &address, 8);
  }
  for (Py_ssize_t i = 0; i < value_count; ++i, slot += 8) {
    if (!put_untyped(program, static_cast<size_t>(i) + program.pointers, values[i], slot)) return false;
  }
  out->size = static_cast<uint32_t>(8 * (slots + 1));
  return true;
}

bool pack_value(const Program& program, size_t buffers, size_t position, PyObject* value, PackedValue* out) {
  out->content = 0;
  if (!program.typed) {
    out->offset = static_cast<uint32_t>(8 * (1 + buffers + position));
    out->size = 8;
    return put_untyped(program, position, value, reinterpret_cast<uint8_t*>(&out->content));
  }
  const Param& p = program.params[program.pointers + position];
  out->offset = p.offset;
  out->size = p.size;
  return put_value(program, program.pointers + position, p, value, reinterpret_cast<uint8_t*>(&out->content));
}

}  // namespace hcq
