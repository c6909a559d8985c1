// From Python's numbers to the values of a launch (values.hpp).
#include "python/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "python/arguments.hpp"
#include "python/structures.hpp"

namespace hcq {

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
    case ParamKind::f8e4m3fn:
      return "float8_e4m3fn";
    case ParamKind::f8e5m2:
      return "float8_e5m2";
    case ParamKind::structure:
      return "structure";
  }
  return "?";
}

bool is_signless(ParamKind k) { return k >= ParamKind::bits8 && k <= ParamKind::bits64; }

bool is_floating(ParamKind k) {
  return k == ParamKind::f16 || k == ParamKind::bf16 || k == ParamKind::f32 || k == ParamKind::f64 ||
         k == ParamKind::f8e4m3fn || k == ParamKind::f8e5m2;
}

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

// A float of 8 bits by the OCP 8-bit Floating Point Specification (OFP8): E4M3, which has no infinities, or E5M2.
struct Float8 {
  int mantissa, bias;
  double most;
  uint8_t nan, infinity;
};
constexpr Float8 kE4M3{3, 7, 448, 0x7f, 0x7f}, kE5M2{2, 15, 57344, 0x7e, 0x7c};

// Rounds to nearest even; false: too large.
bool to_float8(const Float8& f, double v, uint8_t* out, double* value) {
  uint8_t sign = std::signbit(v) ? 0x80 : 0;
  *value = v;
  if (std::isnan(v)) return *out = f.nan | sign, true;
  if (std::isinf(v)) return *out = f.infinity | sign, f.infinity != f.nan;
  double a = std::fabs(v);
  int least = 1 - f.bias;
  int exponent = a == 0 ? least : std::max(least, std::ilogb(a));
  double step = std::ldexp(1.0, exponent - f.mantissa);
  double steps = std::nearbyint(a / step);  // exact: by a power of two
  *value = std::copysign(steps * step, v);
  if (steps * step > f.most) return false;
  auto n = static_cast<unsigned>(steps);
  unsigned normal = 1u << f.mantissa;
  // One step more than the mantissa holds is the next exponent's first number, which is what the sum says.
  unsigned bits = n < normal ? n : (static_cast<unsigned>(exponent + f.bias) << f.mantissa) + n - normal;
  *out = static_cast<uint8_t>(bits | sign);
  return true;
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
    case ParamKind::f8e4m3fn:
    case ParamKind::f8e5m2: {
      double held;
      overflow = !to_float8(p.kind == ParamKind::f8e5m2 ? kE5M2 : kE4M3, v, out, &held);
      inexact = held != v;
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
    return refuse(value_words(program, index) + ": " + std::to_string(v) + " is too large for " + kind_name(p.kind));
  if (exact && inexact)
    return refuse(value_words(program, index) + ": the whole number " + std::to_string(v) + " is not exact in " +
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
      return refuse(value_words(program, index) + ": " + shown(v) + " is not exact in " + kind_name(p.kind) +
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
  if (!fits) return refuse(value_words(program, index) + ": " + shown(v) + " does not fit " + kind_name(p.kind));
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
    return refuse(value_words(program, index) + ": expected a number, got " + shown(v));
  }
  Py_ssize_t n = PyBytes_GET_SIZE(bytes.get());
  if (p) {
    bool same = is_signless(p->kind) ? std::strncmp(text, "int", 3) == 0 || std::strncmp(text, "uint", 4) == 0
                                     : std::strcmp(text, kind_name(p->kind)) == 0;
    if (!same || n != p->size)
      return refuse(value_words(program, index) + ": expected " + kind_name(p->kind) + ", got a NumPy " + text);
    std::memcpy(out, PyBytes_AS_STRING(bytes.get()), p->size);
    return true;
  }
  if (n > 8 || !(text[0] == 'i' || text[0] == 'u' || text[0] == 'b') || std::strcmp(text, "bfloat16") == 0)
    return refuse(value_words(program, index) +
                  ": the library records no parameter types, so only whole numbers can be passed, not " + text);
  std::memset(out, text[0] == 'i' && (PyBytes_AS_STRING(bytes.get())[n - 1] & 0x80) ? 0xff : 0, 8);
  std::memcpy(out, PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(n));
  *size = 8;
  return true;
}
}  // namespace

std::string value_words(const Program& program, size_t index) {
  std::string text = program.name + ": value " + std::to_string(index - program.pointers);
  if (index < program.params.size() && !program.params[index].name.empty())
    text += " (" + program.params[index].name + ")";
  return text;
}

bool put_value(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out) {
  if (p.kind == ParamKind::structure) return put_structure(program, index, p, v, out);
  if (PyLong_Check(v)) return put_int(program, index, p, v, out);
  if (PyFloat_CheckExact(v)) {
    if (!is_floating(p.kind))
      return refuse(value_words(program, index) + ": expected " + kind_name(p.kind) + ", got the float " + shown(v));
    return put_double(program, index, p, PyFloat_AS_DOUBLE(v), false, out);
  }
  if (put_same_scalar(p, v, out)) return true;
  uint32_t size;
  return put_scalar(program, index, &p, v, out, &size);
}

bool put_untyped(const Program& program, size_t index, PyObject* value, uint8_t* slot) {
  if (PyLong_Check(value)) {
    Param p{ParamKind::i32, Access::unknown, 4, 0, ""};
    int64_t wide = 0;
    if (!put_int(program, index, p, value, reinterpret_cast<uint8_t*>(&wide))) return false;
    std::memcpy(slot, &wide, 8);
    return true;
  }
  if (PyFloat_CheckExact(value))
    return refuse(value_words(program, index) + ": the library records no parameter types, so the float " +
                  shown(value) + " can't be passed");
  uint32_t size;
  return put_scalar(program, index, nullptr, value, slot, &size);
}

}  // namespace hcq
