// What the OpenCL driver in Python calls: loading the functions, giving a device its interface, making programs.
#include "opencl/bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <tuple>

#include "core/device.hpp"
#include "core/names.hpp"
#include "opencl/commands.hpp"
#include "python/common.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
using opencl::api;

struct Kind {
  const char* name;
  ParamKind kind;
  uint8_t size;
  Access access = Access::unknown;
};
constexpr Kind kKinds[] = {{"ptr", ParamKind::pointer, 8}, {"const", ParamKind::pointer, 8, Access::read},
                           {"i8", ParamKind::i8, 1},       {"u8", ParamKind::u8, 1},
                           {"i16", ParamKind::i16, 2},     {"u16", ParamKind::u16, 2},
                           {"i32", ParamKind::i32, 4},     {"u32", ParamKind::u32, 4},
                           {"i64", ParamKind::i64, 8},     {"u64", ParamKind::u64, 8},
                           {"f16", ParamKind::f16, 2},     {"f32", ParamKind::f32, 4},
                           {"f64", ParamKind::f64, 8}};

const Kind& kind_of(const std::string& name) {
  for (const Kind& k : kKinds)
    if (name == k.name) return k;
  throw std::invalid_argument("no type of arguments is called " + name);
}

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
  auto program = std::make_unique<Program>();
  auto k = std::make_unique<opencl::Kernel>();
  k->kernel = reinterpret_cast<void*>(kernel);
  // Kernargs are the pointers, then the values, whatever their order in the source.
  uint32_t at = 0;
  for (bool pointers : {true, false}) {
    for (uint32_t i = 0; i < arguments.size(); ++i) {
      const Kind& kind = kind_of(arguments[i]);
      if ((kind.kind == ParamKind::pointer) != pointers) continue;
      at = (at + kind.size - 1) / kind.size * kind.size;
      program->params.push_back(Param{kind.kind, kind.access, kind.size, at, ""});
      k->arguments.push_back(opencl::Argument{i, at, kind.size, pointers});
      at += kind.size;
      program->pointers += pointers;
    }
  }
  program->id = program_named(name);
  program->name = name;
  program->kind = EntryKind::elsewhere;
  program->typed = true;
  program->kernargs_size = at;
  program->most_items = most_items;
  std::tie(program->wanted_items[0], program->wanted_items[1], program->wanted_items[2]) = wanted;
  program->end = end;
  api().clRetainKernel(k->kernel);
  ++opencl::g_held.kernels;
  program->entry = k.release();
  PyObject* capsule = PyCapsule_New(program.get(), kProgramCapsule, [](PyObject* unused) {
    program_release(static_cast<Program*>(PyCapsule_GetPointer(unused, kProgramCapsule)));
  });
  if (!capsule) throw nb::python_error();
  program.release();
  return nb::steal(capsule);
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
