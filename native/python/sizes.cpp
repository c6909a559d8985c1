// Sizes of launches, as they are given in Python: three whole numbers that the device and the program take.
#include <cstring>
#include <string>

#include "python/arguments.hpp"

namespace hcq {

namespace {
bool parse_size(PyObject* value, uint64_t* out) {
  if (PyLong_Check(value)) {
    int overflow;
    long long v = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || v < 0) return false;
    *out = static_cast<uint64_t>(v);
    return true;
  }
  if (!PyIndex_Check(value)) return false;
  Ref n(PyNumber_Index(value));
  if (!n) {
    PyErr_Clear();
    return false;
  }
  return parse_size(n.get(), out);
}

bool parse_sizes(PyObject* value, const uint64_t limits[3], uint32_t out[3], const char* what) {
  out[0] = out[1] = out[2] = 1;
  if (!value || value == Py_None) return true;
  uint64_t v;
  Ref list(PySequence_Tuple(value));  // a copy of a list: __index__ of an item may change it
  if (!list) {
    PyErr_Clear();
    return refuse(std::string(what) + " must be three whole numbers (x, y, z), got " + shown(value));
  }
  Py_ssize_t n = PyTuple_GET_SIZE(list.get());
  if (n != 3) return refuse(std::string(what) + " must be three whole numbers (x, y, z), got " + shown(value));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(list.get(), i);
    if (!parse_size(item, &v))
      return refuse(std::string(what) + " must be whole numbers, 0 or more, got " + shown(value));
    if (v > limits[i])
      return refuse(std::string(what) + " " + shown(value) + " is more than the device's limit (" +
                    std::to_string(limits[i]) + " in dimension " + std::to_string(i) + ")");
    out[i] = static_cast<uint32_t>(v);
  }
  return true;
}
std::string dims(const uint32_t sizes[3]) {
  return "(" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " + std::to_string(sizes[2]) + ")";
}
}  // namespace

bool parse_groups(PyObject* value, const Limits& limits, uint32_t out[3]) {
  return parse_sizes(value, limits.groups, out, "global_size");
}

bool parse_items(PyObject* value, const Limits& limits, uint32_t out[3]) {
  if (!parse_sizes(value, limits.items, out, "local_size")) return false;
  uint64_t total = static_cast<uint64_t>(out[0]) * out[1] * out[2];
  if (total == 0)
    return refuse("local_size has an empty dimension: a group has at least one item, got " + shown(value));
  if (total > limits.group_items)
    return refuse("local_size " + shown(value) + " is " + std::to_string(total) + " items, the device's limit is " +
                  std::to_string(limits.group_items));
  return true;
}

bool check_sizes(const Program& program, const uint32_t groups[3], const uint32_t items[3]) {
  if (program.kind == EntryKind::plain || program.kind == EntryKind::packed) {
    for (int i = 0; i < 3; ++i)
      if (groups[i] > 1 || items[i] > 1)
        return refuse(program.name +
                      " is a plain function, which runs once: sizes must be (1, 1, 1); write a grid kernel for more");
  }
  if (program.kind == EntryKind::elsewhere) {
    uint64_t product = static_cast<uint64_t>(items[0]) * items[1] * items[2];
    if (program.wanted_items[0] && std::memcmp(program.wanted_items, items, sizeof program.wanted_items) != 0)
      return refuse(program.name + " is compiled for groups of " + dims(program.wanted_items) + ", and " + dims(items) +
                    " are given");
    if (product > program.most_items)
      return refuse(program.name + ": a group of " + dims(items) + "; this kernel takes " +
                    std::to_string(program.most_items) + " work-items at most");
  }
  // Products of three 31-bit counts can pass 64 bits.
  unsigned __int128 total = static_cast<unsigned __int128>(groups[0]) * groups[1] * groups[2];
  if (total > (1ull << 48))
    return refuse("global_size has " + std::to_string(static_cast<double>(total)) + " groups, the limit is 2^48");
  uint64_t most = program.most_groups && total ? program.most_groups(program, items) : UINT64_MAX;
  if (total > most)
    return refuse(program.name + ": " + std::to_string(static_cast<uint64_t>(total)) +
                  " groups are to be there at a time, and this device runs " + std::to_string(most) + " of " +
                  dims(items) + " with their local memory");
  return !program.ready || program.ready(&program, items) != Ready::failed;
}

}  // namespace hcq
