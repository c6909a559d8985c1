// Packing of launch arguments (arguments.hpp): buffers' addresses, then values (values.cpp); their sizes: sizes.cpp.
#include "python/arguments.hpp"

#include <cstring>

#include "memory/memory.hpp"
#include "python/values.hpp"

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
std::string counted(size_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

bool refuse_buffer(const Program& program, Py_ssize_t i, PyObject* o) {
  PyErr_Clear();
  std::string text = program.name + ": buffer " + std::to_string(i);
  if (hcq_buffer_check(o)) return refuse(text + " is an image, which this device can't reach: copy it with hcq.copy");
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
    if (hcq_buffer_opaque(handle) && !program.takes) return refuse_buffer(program, i, o);
    *out = reinterpret_cast<HCQBufferObject*>(handle)->va_addr;
    return true;
  }
  if (hcq_buffer_check(o)) {
    auto* handle = reinterpret_cast<HCQBufferObject*>(o);
    if (handle->generation != g_generation) {
      raise_forked(handle->generation, "an HCQBuffer");
      return false;
    }
    if (handle->opaque && !program.takes) return refuse_buffer(program, i, o);
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
// Of a program whose parameters are known by their sizes alone, in their order.
bool pack_in_order(const Program& program, PyObject* const* buffers, Py_ssize_t count, PyObject* const* values,
                   Py_ssize_t value_count, Arguments* out) {
  const std::vector<Param>& in_order = program.in_order;
  if (static_cast<size_t>(count + value_count) != in_order.size())
    return refuse(program.name + " takes " + counted(in_order.size(), "argument") + ", got " +
                  std::to_string(count + value_count));
  const Param& last = in_order.back();
  uint64_t slots = (last.offset + last.size + 7) / 8 - 1;
  std::memset(out->bytes, 0, 8 * (slots + 1));
  std::memcpy(out->bytes, &slots, 8);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Param& p = in_order[static_cast<size_t>(i)];
    if (p.kind != ParamKind::bits64)
      return refuse(
          program.name + ": argument " + std::to_string(i) + " is a value of " + counted(p.size, "byte") +
          ": its library marks no pointers, so that arguments are given in the kernel's own order, which must "
          "have buffers first");
    uint64_t address;
    if (!address_of(program, i, buffers[i], &address, out)) return false;
    std::memcpy(out->bytes + p.offset, &address, 8);
  }
  for (Py_ssize_t i = 0; i < value_count; ++i) {
    const Param& p = in_order[static_cast<size_t>(count + i)];
    if (!put_value(program, static_cast<size_t>(i), p, values[i], out->bytes + p.offset)) return false;
  }
  out->size = static_cast<uint32_t>(8 * (slots + 1));
  return true;
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
  if (static_cast<uint64_t>(count + value_count) > kMostArguments)
    return refuse(program.name + ": " + std::to_string(count + value_count) + " arguments are too many, the limit is " +
                  std::to_string(kMostArguments));
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
      if (program.takes && address) {  // an array has none yet
        std::string why;
        if (!program.takes(program, static_cast<size_t>(i), address, &why))
          return refuse(program.name + ": buffer " + std::to_string(i) + " " + why);
      }
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
  if (!program.in_order.empty()) return pack_in_order(program, buffers, count, values, value_count, out);
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
  out->more.clear();
  const Param* known = value_param(program, buffers, position);
  if (!known) {
    out->offset = static_cast<uint32_t>(8 * (1 + buffers + position));
    out->size = 8;
    return put_untyped(program, position, value, reinterpret_cast<uint8_t*>(&out->content));
  }
  const Param& p = *known;
  size_t index = program.pointers + position;
  out->offset = p.offset;
  out->size = p.size;
  if (p.size <= 8) return put_value(program, index, p, value, reinterpret_cast<uint8_t*>(&out->content));
  std::vector<uint64_t> words((p.size + 7) / 8);
  if (!put_value(program, index, p, value, reinterpret_cast<uint8_t*>(words.data()))) return false;
  out->content = words[0];
  out->more.assign(words.begin() + 1, words.end());
  return true;
}

}  // namespace hcq
