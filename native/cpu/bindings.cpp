// _native._Function: a loaded function that runs on the calling thread. Not for launches: no queue, no checks of sizes.
#include "cpu/bindings.hpp"

#include <dlfcn.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "core/program.hpp"
#include "cpu/context.hpp"
#include "cpu/fault.hpp"
#include "cpu/host.hpp"
#include "python/common.hpp"
#include "python/gil.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {

[[noreturn]] void raise_invalid(const std::string& message) {
  nb::object type = nb::module_::import_("hcq.errors").attr("InvalidProgram");
  PyErr_SetString(type.ptr(), message.c_str());
  throw nb::python_error();
}

class Function {
 public:
  Function(nb::bytes library, const std::string& name) {
    std::string error;
    program_ = program_load(reinterpret_cast<const uint8_t*>(library.c_str()), library.size(), name, &error);
    if (!program_) raise_invalid(error);
  }
  ~Function() { program_release(program_); }
  Function(const Function&) = delete;

  void run(nb::bytes kernargs, std::array<uint32_t, 3> groups, std::array<uint32_t, 3> items, uint64_t first,
           int64_t last, const std::string& device) const {
    if (program_->generation != g_generation) {
      raise_forked(program_->generation, "function '" + program_->name + "'");
      throw nb::python_error();
    }
    uint64_t end = last < 0 ? uint64_t{groups[0]} * groups[1] * groups[2] : static_cast<uint64_t>(last);
    const auto* bytes = reinterpret_cast<const uint8_t*>(kernargs.c_str());
    uint64_t group_items = uint64_t{items[0]} * items[1] * items[2];
    if (group_items == 0 || group_items > kMaxItems) throw nb::value_error("a group has 1 to 1024 items");
    GilReleased released;
    set_running_device(device.c_str());
    run_groups(*program_, bytes, groups.data(), items.data(), first, end);
    set_running_device(nullptr);
  }
  const Program& program() const { return *program_; }

 private:
  Program* program_;
};

// Loads a shared library for good, without the interpreter's lock, which ctypes holds meanwhile. False: it can't be.
bool load_shared(const std::string& path) {
  GilReleased released;
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
}

}  // namespace

void bind_cpu(nb::module_& m) {
  m.def("load_shared", load_shared, nb::arg("path"), "Load a shared library for good; other threads of Python go on.");
  m.def("cpu_features", cpu_features, "The processor's identification in its raw words, for keys.");
  nb::class_<Function>(m, "_Function", "A function of a CPU library, run on the calling thread; for tests and tools.")
      .def(nb::init<nb::bytes, const std::string&>(), nb::arg("library"), nb::arg("name"))
      .def("run", &Function::run, nb::arg("kernargs") = nb::bytes(""),
           nb::arg("groups") = std::array<uint32_t, 3>{1, 1, 1}, nb::arg("items") = std::array<uint32_t, 3>{1, 1, 1},
           nb::arg("first") = 0, nb::arg("last") = -1, nb::arg("device") = "TEST",
           "Run groups first..last-1 (all by default) with the GIL released.")
      .def_prop_ro("kind", [](const Function& f) { return static_cast<int>(f.program().kind); })
      .def_prop_ro("typed", [](const Function& f) { return f.program().typed; })
      .def_prop_ro("kernargs_size", [](const Function& f) { return f.program().kernargs_size; })
      .def_prop_ro("entry", [](const Function& f) { return reinterpret_cast<uintptr_t>(f.program().entry); });
}

}  // namespace hcq
