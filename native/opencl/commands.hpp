// Kernels of OpenCL and the interface that carries out commands with its queues (core/interface.hpp).
#pragma once
#include <vector>

#include "core/base.hpp"
#include "core/interface.hpp"
#include "core/program.hpp"
#include "opencl/api.hpp"

namespace hcq::opencl {

struct Argument {
  uint32_t index;         // in the kernel
  uint32_t offset, size;  // in the kernargs
  bool pointer, image;
};

// What Program::entry is. A cl_kernel holds one set of arguments: setting them and enqueueing goes under the lock.
struct Kernel {
  Handle kernel, context;
  std::vector<Argument> arguments;
  SpinLock lock;
  std::vector<uint8_t> last;  // the kernargs that are set; empty: none are
};

// What Device::context is.
struct Context {
  Handle context, device;
  bool reached;  // whether the host reads and writes the device's memory
};

// What carries out a queue's commands: an in-order queue of OpenCL, which holds the context.
struct Lane {
  Handle queue;
  Context context;
};

// How many of OpenCL's objects are held here. Relaxed: for tests of leaks, when nothing else runs.
struct Held {
  std::atomic<int64_t> contexts{0}, queues{0}, kernels{0}, events{0}, images{0};
};
extern Held g_held;

const Interface& interface();

}  // namespace hcq::opencl
