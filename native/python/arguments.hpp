// From Python's arguments to kernargs: buffers and values, checked against what the library recorded.
#pragma once
#include <vector>

#include "core/program.hpp"
#include "python/common.hpp"

namespace hcq {

// The kernargs of one launch, filled in place.
struct Arguments {
  uint32_t size = 0;
  bool arrays = false;  // a NumPy array's own memory is used: the launch must finish before the call returns
  Ref copies;           // list of private copies of read-only arrays, kept as long as the launch may read them
  PyObject* const* accesses = nullptr;  // the program's own, where somebody assigned or asked for them
  alignas(64) uint8_t bytes[kMaxInlineArguments];
};

// Packs buffers (Buffer, HCQBuffer, C-contiguous NumPy arrays, writable where the launch may write) and vals (a
// sequence, or null for none). Raises LaunchError. The caller keeps the objects alive until the launch is queued, and
// arrays until it has finished.
bool pack_arguments(const Program& program, PyObject* const* buffers, Py_ssize_t count, PyObject* vals, Arguments* out);

// One value as it stands in kernargs.
struct PackedValue {
  uint64_t content;  // the first `size` bytes count
  uint32_t offset, size;
  std::vector<uint64_t> more;  // of a structure of more than 8 bytes: what follows `content`
};
// Packs the value at `position` (behind `buffers` buffers) of a launch; LaunchError as pack_arguments.
bool pack_value(const Program& program, size_t buffers, size_t position, PyObject* value, PackedValue* out);

// For messages: raises LaunchError and returns false; the repr of an object, cut short.
bool refuse(const std::string& message);
std::string shown(PyObject*);

}  // namespace hcq
