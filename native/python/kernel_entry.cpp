// Entries: packing the arguments of a launch, and asking Python once whether it stays inside the buffers.
#include "python/kernel_entry.hpp"

#include <cmath>
#include <cstring>
#include <new>

#include "memory/memory.hpp"

namespace hcq {

namespace {
constexpr size_t kLaunches = 8;  // sizes of one entry that were found to stay inside the buffers

// Fills a number's place in the kernargs. False where that needs more thought: another type, too large, not exact.
bool put_number(KernelArgument kind, PyObject* v, uint8_t* out, uint64_t* seen) {
  if (kind == KernelArgument::f32 || kind == KernelArgument::f64) {
    double d;
    if (PyFloat_CheckExact(v)) {
      d = PyFloat_AS_DOUBLE(v);
    } else if (PyLong_CheckExact(v)) {
      int overflow;
      long n = PyLong_AsLongAndOverflow(v, &overflow);
      if (overflow || n > (1l << 24) || n < -(1l << 24)) return false;
      d = static_cast<double>(n);
    } else {
      return false;
    }
    std::memcpy(seen, &d, 8);
    if (kind == KernelArgument::f64) {
      std::memcpy(out, &d, 8);
      return true;
    }
    float f = static_cast<float>(d);
    if (std::isinf(f) && !std::isinf(d)) return false;
    std::memcpy(out, &f, 4);
    return true;
  }
  if (!PyLong_CheckExact(v)) return false;
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
  if (overflow) return false;
  *seen = static_cast<uint64_t>(n);
  auto put = [&](long long low, long long high, size_t size) {
    if (n < low || n > high) return false;
    std::memcpy(out, &n, size);  // little endian
    return true;
  };
  switch (kind) {
    case KernelArgument::i8:
      return put(INT8_MIN, INT8_MAX, 1);
    case KernelArgument::u8:
      return put(0, UINT8_MAX, 1);
    case KernelArgument::i16:
      return put(INT16_MIN, INT16_MAX, 2);
    case KernelArgument::u16:
      return put(0, UINT16_MAX, 2);
    case KernelArgument::i32:
      return put(INT32_MIN, INT32_MAX, 4);
    case KernelArgument::u32:
      return put(0, UINT32_MAX, 4);
    case KernelArgument::u64:
      return put(0, INT64_MAX, 8);
    default:
      return put(INT64_MIN, INT64_MAX, 8);
  }
}

// Whether a constant is the same as the entry's: the same object, or an equal whole number or text.
bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (PyLong_CheckExact(a) && PyLong_CheckExact(b)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
}

bool parse_kind(PyObject* word, KernelArgument* out) {
  static const char* words[] = {"buffer", "constant", "f32", "f64", "i8",  "u8",
                                "i16",    "u16",      "i32", "u32", "i64", "u64"};
  const char* text = PyUnicode_Check(word) ? PyUnicode_AsUTF8(word) : nullptr;
  if (!text) return false;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
    if (std::strcmp(text, words[i]) == 0) {
      *out = static_cast<KernelArgument>(i);
      return true;
    }
  return false;
}

uint8_t size_of(KernelArgument kind) {
  switch (kind) {
    case KernelArgument::i8:
    case KernelArgument::u8:
      return 1;
    case KernelArgument::i16:
    case KernelArgument::u16:
      return 2;
    case KernelArgument::f32:
    case KernelArgument::i32:
    case KernelArgument::u32:
      return 4;
    default:
      return 8;
  }
}
}  // namespace

PyObject* dims(const uint32_t v[3]) { return Py_BuildValue("(III)", v[0], v[1], v[2]); }

bool entry_pack(const KernelEntry& entry, const LaunchSizes& sizes, PyObject* const* args, PackedLaunch* out) {
  uint32_t buffer = 0;
  uint64_t* key = out->key;
  for (int d = 0; d < 3; ++d) *key++ = sizes.groups[d];
  for (int d = 0; d < 3; ++d) *key++ = sizes.items[d];
  size_t i = 0;
  for (const KernelParam& param : entry.params) {
    PyObject* o = args[i++];
    if (param.kind == KernelArgument::buffer) {
      if (!buffer_check(o)) return false;
      auto* b = reinterpret_cast<BufferObject*>(o);
      PyObject* handle = b->buf;
      if (!handle || b->dtype != param.object.get() || (b->base ? b->base->closed : b->closed) ||
          b->generation != g_generation || !hcq_buffer_check(handle) || hcq_buffer_opaque(handle))
        return false;
      if (b->device != entry.device.get() && PyUnicode_Compare(b->device, entry.device.get()) != 0) return false;
      uint64_t address = reinterpret_cast<HCQBufferObject*>(handle)->va_addr;
      std::memcpy(out->bytes + 8 * buffer++, &address, 8);
      *key++ = b->size;
    } else if (param.kind == KernelArgument::constant) {
      if (!same_constant(o, param.object.get())) return false;
    } else {
      uint64_t seen;
      if (!put_number(param.kind, o, out->bytes + param.offset, &seen)) return false;
      if (param.relevant) *key++ = seen;
    }
  }
  return true;
}

bool entry_knows(const KernelEntry& entry, const uint64_t* key) {
  for (size_t at = 0; at < entry.known.size(); at += entry.width)
    if (std::memcmp(&entry.known[at], key, entry.width * sizeof *key) == 0) return true;
  return false;
}

bool entry_gone(const KernelEntry& entry) {
  // relaxed: closing sets it with the GIL
  return entry.program->device->device->closed.load(std::memory_order_relaxed) ||
         entry.program->program->generation != g_generation;
}

bool entry_sizes_fit(const KernelEntry& entry, const LaunchSizes& sizes) {
  const Limits& limits = entry.program->device->device->limits;
  uint64_t total = 1;
  for (int d = 0; d < 3; ++d) {
    if (sizes.groups[d] > limits.groups[d] || sizes.items[d] > limits.items[d] || sizes.items[d] == 0) return false;
    if (static_cast<uint64_t>(sizes.groups[d]) * sizes.items[d] > 0x7fffffff) return false;
    total *= sizes.items[d];
  }
  return total <= limits.group_items;
}

bool entry_check(KernelEntry& entry, const LaunchSizes& sizes, PyObject* const* args, const uint64_t* key) {
  Ref groups(dims(sizes.groups)), items(dims(sizes.items)), lengths(PyList_New(0)), numbers(PyList_New(0));
  if (!groups || !items || !lengths || !numbers) return false;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    KernelArgument kind = entry.params[i].kind;
    if (kind == KernelArgument::constant) continue;
    Ref item(kind == KernelArgument::buffer
                 ? PyLong_FromUnsignedLongLong(reinterpret_cast<BufferObject*>(args[i])->size)
                 : Py_NewRef(args[i]));
    if (!item || PyList_Append(kind == KernelArgument::buffer ? lengths.get() : numbers.get(), item.get()) < 0)
      return false;
  }
  Ref done(PyObject_CallFunctionObjArgs(entry.check.get(), groups.get(), items.get(), lengths.get(), numbers.get(),
                                        nullptr));
  if (!done) return false;
  try {
    if (entry.known.size() < kLaunches * entry.width)
      entry.known.insert(entry.known.end(), key, key + entry.width);
    else
      std::memcpy(&entry.known[entry.next++ % kLaunches * entry.width], key, entry.width * sizeof *key);
  } catch (const std::bad_alloc&) {
    entry.known.clear();  // it is checked again
  }
  return true;
}

std::shared_ptr<KernelEntry> entry_make(ProgramObject* program, PyObject* device, PyObject* params, PyObject* check) {
  const auto& taken = program->program->params;
  auto entry = std::make_shared<KernelEntry>();
  uint32_t number = program->program->pointers;
  entry->width = 6;
  for (size_t i = 0; i < static_cast<size_t>(PyTuple_GET_SIZE(params)); ++i) {
    PyObject *word, *value;
    int relevant;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(params, static_cast<Py_ssize_t>(i)), "OOp", &word, &value, &relevant))
      return nullptr;
    KernelParam param{KernelArgument::buffer, relevant != 0, 0, Ref(Py_NewRef(value))};
    if (!parse_kind(word, &param.kind)) return nullptr;
    if (param.kind == KernelArgument::buffer) {
      ++entry->buffers;
      ++entry->width;
    } else if (param.kind != KernelArgument::constant) {
      if (number >= taken.size() || taken[number].size != size_of(param.kind)) return nullptr;
      bool floating = taken[number].kind == ParamKind::f32 || taken[number].kind == ParamKind::f64;
      if (floating != (param.kind == KernelArgument::f32 || param.kind == KernelArgument::f64)) return nullptr;
      param.offset = taken[number++].offset;
      entry->width += param.relevant;
    }
    entry->params.push_back(std::move(param));
  }
  if (!entry->buffers || entry->buffers != program->program->pointers || number != taken.size()) return nullptr;
  Py_INCREF(reinterpret_cast<PyObject*>(program));
  entry->program = program;
  entry->device = Ref(Py_NewRef(device));
  entry->check = Ref(Py_NewRef(check));
  return entry;
}

bool entry_replaces(const KernelEntry& made, const KernelEntry& old) {
  if (entry_gone(old)) return true;
  if (old.program != made.program || old.params.size() != made.params.size()) return false;
  for (size_t i = 0; i < old.params.size(); ++i)
    if (old.params[i].object.get() != made.params[i].object.get()) return false;
  return true;
}

}  // namespace hcq
