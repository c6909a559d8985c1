// What a kernel keeps of a launch: the types of its arguments and the program they led to, so that the next launch that
// fits is packed and queued without Python. What does not live here: the kernel (kernel_type), the call
// (kernel_launch).
#pragma once
#include <Python.h>

#include <memory>
#include <vector>

#include "python/launch.hpp"

namespace hcq {

constexpr size_t kMaxParams = 64;  // more go to Python

enum class KernelArgument : uint8_t { buffer, constant, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64 };

struct KernelParam {
  KernelArgument kind;
  bool relevant;    // whether an access depends on the number
  uint32_t offset;  // of a number, in the kernargs
  Ref object;       // the dtype of a buffer; a constant
};

struct KernelEntry {
  ProgramObject* program = nullptr;  // strong
  Ref device;                        // the name of the device that buffers must lie on
  Ref check;                         // check(groups, items, sizes, numbers): raises where a launch leaves a buffer
  std::vector<KernelParam> params;
  uint32_t buffers = 0;
  std::vector<uint64_t> known;  // launches that were checked: groups, items, lengths, relevant numbers of each
  size_t width = 0, next = 0;
  ~KernelEntry() { Py_XDECREF(reinterpret_cast<PyObject*>(program)); }
};

struct LaunchSizes {
  uint32_t groups[3], items[3];
};

// One launch as an entry sees it.
struct PackedLaunch {
  uint64_t key[6 + kMaxParams];
  alignas(64) uint8_t bytes[(kMaxParams + 1) * 8];
};

PyObject* dims(const uint32_t v[3]);

// Packs arguments that the entry fits; false where they don't.
bool entry_pack(const KernelEntry&, const LaunchSizes&, PyObject* const* args, PackedLaunch* out);
// Whether a launch of these sizes was found to stay inside the buffers.
bool entry_knows(const KernelEntry&, const uint64_t* key);
// Whether an entry's device was closed, or is the parent's of a forked process.
bool entry_gone(const KernelEntry&);
// Whether the device takes the sizes, as Python checks them (and explains them, when it is asked next).
bool entry_sizes_fit(const KernelEntry&, const LaunchSizes&);
// Asks Python whether a launch of these sizes stays inside the buffers, and keeps the answer. False: an exception.
bool entry_check(KernelEntry&, const LaunchSizes&, PyObject* const* args, const uint64_t* key);

// What launches of this sort are from now on, null where they can't be made natively; `params`: for each parameter
// (word, object, relevant). Null with an exception set where a parameter is no such tuple.
std::shared_ptr<KernelEntry> entry_make(ProgramObject* program, PyObject* device, PyObject* params, PyObject* check);
// Whether an old entry is of no use beside a new one: of the same types, or gone.
bool entry_replaces(const KernelEntry& made, const KernelEntry& old);

}  // namespace hcq
