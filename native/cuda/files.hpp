// Reading files to a device's memory by NVIDIA's cuFile, which is found at run time: names, numbers and layouts are
// those of the cuFile API reference. What does not live here: whether to do so (hcq.drivers.cuda.files).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cuda/context.hpp"

namespace hcq::cuda {

struct FileFacts {
  unsigned major, minor;  // of the kernel module nvidia-fs; 0 and 0: it isn't in use
  unsigned systems;       // bits of CUfileDriverStatusFlags
};

// Loads the library by the first of these names that is there, and starts it; once a process. Returns why it can't be
// used, else nothing. Any thread; blocks.
std::string load_cufile(const std::vector<std::string>& names);
FileFacts cufile_facts();  // after load_cufile

// The magic number of the file system that an open file is on; 0: unknown.
unsigned long file_system(int descriptor);

// A file that cuFile knows; threads may share it. Owns its descriptor.
class KnownFile {
 public:
  explicit KnownFile(int descriptor);  // throws Failure with cuFile's number
  ~KnownFile();
  KnownFile(const KnownFile&) = delete;
  KnownFile& operator=(const KnownFile&) = delete;
  // Reads to memory of a device: (bytes read, what went wrong). That is an errno, or cuFile's number below 0. Fewer
  // bytes without an error: the file ends. Blocks.
  std::pair<size_t, int> read(const Context& context, Address to, size_t bytes, int64_t offset) const;

 private:
  int descriptor_;
  Handle handle_ = nullptr;
  uint32_t generation_ = g_generation;
};

}  // namespace hcq::cuda
