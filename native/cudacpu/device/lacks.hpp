// What the devices are to do without, as some GPUs and drivers do: HCQ_CUDACPU_WITHOUT, names with commas between them.
// Attributes say so, and the calls answer CUDA_ERROR_NOT_SUPPORTED.
#pragma once
#include "api/api.hpp"

namespace cudacpu {

enum class Lack : unsigned {
  memory_operations = 1,  // of streams
  managed_access = 2,     // of host and device at a time, to managed memory
  pools = 4,              // and allocation in stream order
  registering = 8,        // of the host's own memory
  mapping = 16,           // of page-locked memory
  unified_addresses = 32,
  graphs = 64,  // that can be instantiated
};

CUresult read_lacks();        // before devices are made
inline unsigned lacking = 0;  // what it found; not written after that
inline bool lacks(Lack which) { return lacking & static_cast<unsigned>(which); }
// Whether an attribute of a device is one of those, and so 0.
bool lacks(CUdevice_attribute which);

}  // namespace cudacpu
