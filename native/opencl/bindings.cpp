// What the OpenCL driver in Python calls: loading the functions, giving a device its interface, making programs.
#include "opencl/bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <tuple>

#include "core/device.hpp"
#include "opencl/commands.hpp"
#include "python/common.hpp"
#include "python/elsewhere.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
using opencl::api;

void load(const std::string& library) {
  std::string error;
  if (!opencl::load(library.c_str(), &error)) throw std::runtime_error(error);
}

void serve(nb::handle device, uint64_t context, uint64_t cl_device) {
  Device* d = device_of(device.ptr());
  if (!d) throw nb::python_error();
  auto* c = new opencl::Context{reinterpret_cast<void*>(context), reinterpret_cast<void*>(cl_device)};
  api().clRetainContext(c->context);
  ++opencl::g_held.contexts;
  d->interface = &opencl::interface();
  d->context = c;
}

void end(Program* program) {
  auto* k = static_cast<opencl::Kernel*>(program->entry);
  api().clReleaseKernel(k->kernel);
  --opencl::g_held.kernels;
  delete k;
}

nb::object make_program(const std::string& name, uint64_t kernel, const std::vector<std::string>& arguments,
                        uint64_t most_items, std::tuple<uint32_t, uint32_t, uint32_t> wanted) {
  std::vector<Laid> laid;
  auto program = program_elsewhere(name, arguments, {}, most_items, wanted, &laid);
  auto k = std::make_unique<opencl::Kernel>();
  k->kernel = reinterpret_cast<void*>(kernel);
  for (const Laid& each : laid)
    k->arguments.push_back(opencl::Argument{each.index, each.offset, each.size, each.pointer});
  program->end = end;
  api().clRetainKernel(k->kernel);
  ++opencl::g_held.kernels;
  program->entry = k.release();
  return program_capsule(std::move(program));
}
}  // namespace

void bind_opencl(nb::module_& m) {
  m.def("opencl_load", load, nb::arg("library"),
        "Find OpenCL's functions in a library or in what that was linked with; RuntimeError where one is missing.");
  m.def("opencl_serve", serve, nb::arg("device"), nb::arg("context"), nb::arg("cl_device"),
        "Have the commands of a device, which has no queue yet, carried out by OpenCL; handles as numbers.");
  m.def(
      "opencl_program", make_program, nb::arg("name"), nb::arg("kernel"), nb::arg("arguments"), nb::arg("most_items"),
      nb::arg("wanted"),
      "What a Program is made of, around a cl_kernel: its arguments' types in order, the largest group, and the only\n"
      "one that it takes, (0, 0, 0) for any.");
  m.def(
      "opencl_fail",
      [](const std::string& function, int32_t status) {
        if (!opencl::fail(function, status))
          throw std::invalid_argument("no call of " + function + " can be made fail");
      },
      nb::arg("function"), nb::arg("status"),
      "For tests: the next call of a function is answered with a status; without a name all calls are, until 0 is "
      "given.");
  m.def(
      "opencl_held",
      [] {
        const opencl::Held& h = opencl::g_held;
        return std::make_tuple(h.contexts.load(), h.queues.load(), h.kernels.load(), h.events.load());
      },
      "How many contexts, queues, kernels and events of OpenCL native code holds.");
}

}  // namespace hcq
