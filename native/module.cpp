// The extension module hcq._native: collects what the other files define. No logic lives here.
#include <nanobind/nanobind.h>

#include <stdexcept>

#include "core/lifecycle.hpp"
#include "cpu/bindings.hpp"
#include "cuda/bindings.hpp"
#include "disk/bindings.hpp"
#include "formats/header.hpp"
#include "memory/memory.hpp"
#include "opencl/bindings.hpp"
#include "python/common.hpp"
#include "python/functions.hpp"
#include "python/kernel_launch.hpp"
#include "python/record_functions.hpp"
#include "python/structures.hpp"
#include "python/user_line.hpp"
#include "vulkan/bindings.hpp"

namespace nb = nanobind;

NB_MODULE(_native, m) {
  // Types, pools and threads are the process's: a second interpreter would take the first one's types away.
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    throw std::runtime_error("hcq works in the main interpreter of a process only, not in subinterpreters");
  m.doc() = "Native parts of hcq: signals, queues, the command processor, memory, launches.";
  hcq::prepare_for_fork();
  PyObject* module = m.ptr();
  if (hcq::init_signal(module) < 0 || hcq::init_device(module) < 0 || hcq::init_stream(module) < 0 ||
      hcq::init_timeline_lock(module) < 0 || hcq::init_program(module) < 0 || hcq::init_kernel(module) < 0 ||
      hcq::init_kernel_launch(module) < 0 || hcq::init_command_queue(module) < 0 || hcq::init_graph(module) < 0 ||
      hcq::init_graph_input(module) < 0 || hcq::init_graph_changes(module) < 0 || hcq::init_replay(module) < 0 ||
      hcq::init_memory(module) < 0)
    throw nb::python_error();
  hcq::init_native_functions(m);
  hcq::init_record_functions(m);
  hcq::init_user_line(m);
  hcq::init_structures(m);
  hcq::bind_cpu(m);
  hcq::bind_disk(m);
  hcq::bind_formats(m);
  hcq::vk::bind(m);
  hcq::bind_opencl(m);
  hcq::cuda::bind(m);
}
