// What the CUDA driver in Python calls: devices, contexts and their memory, loading images, making programs.
#include "cuda/bindings.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>

#include "core/device.hpp"
#include "cuda/files.hpp"
#include "cuda/lane.hpp"
#include "python/common.hpp"
#include "python/elsewhere.hpp"
#include "python/error_kept.hpp"
#include "python/refusals.hpp"

namespace nb = nanobind;

namespace hcq::cuda {
namespace {

void set_error(const Failure& failure) {
  PyErr_SetString(failure.result == kOutOfMemory ? PyExc_MemoryError : PyExc_RuntimeError, failure.said.c_str());
}

template <class Work>
auto without_gil(Work work) {
  return call_without_gil(set_error, work);
}

nb::dict words_of(const Facts& f) {
  nb::dict d;
  d["name"] = f.name;
  d["memory"] = f.memory;
  d["driver_version"] = f.driver_version;
  d["group_items"] = f.group_items;
  d["group_size"] = nb::make_tuple(f.group_size[0], f.group_size[1], f.group_size[2]);
  d["groups"] = nb::make_tuple(f.groups[0], f.groups[1], f.groups[2]);
  d["local_memory"] = f.local_memory;
  d["local_memory_most"] = f.local_memory_most;
  d["multiprocessors"] = f.multiprocessors;
  d["warp"] = f.warp;
  d["capability"] = nb::make_tuple(f.major, f.minor);
  d["unified"] = bool(f.unified);
  d["maps_host"] = bool(f.maps_host);
  d["integrated"] = bool(f.integrated);
  d["cooperative"] = bool(f.cooperative);
  d["copy_engines"] = f.copy_engines;
  d["pools"] = bool(f.pools);
  d["peers"] = f.peers;
  d["pci"] = nb::make_tuple(f.pci_domain, f.pci_bus, f.pci_device);
  return d;
}

nb::list told_devices() {
  auto found = without_gil([] { return devices(); });
  nb::list told;
  for (const Facts& each : found) told.append(words_of(each));
  return told;
}

std::shared_ptr<Context> open(size_t index, uint64_t keep) {
  return without_gil([&] {
    std::vector<Facts> found = devices();
    if (index >= found.size()) throw Unavailable{"there is no CUDA device " + std::to_string(index), "count from 0"};
    return Context::open(found[index], keep);
  });
}

void serve(nb::handle device, std::shared_ptr<Context> context) {
  Device* d = device_of(device.ptr());
  if (!d) throw nb::python_error();
  d->interface = &interface();
  d->context = new std::shared_ptr<Context>(std::move(context));
}

void end(Program* program) { delete static_cast<Kernel*>(program->entry); }

// A module that may end in a finalizer while an exception is on its way: hcq.cudacpu unloads in Python.
std::shared_ptr<Module> finalized(std::shared_ptr<Module> module) {
  Module* raw = module.get();
  return {raw, [held = std::move(module)](Module*) mutable {
            if (!PyGILState_Check()) return held.reset();
            ErrorKept kept;
            held.reset();
          }};
}

uint64_t most_groups(const Program& program, const uint32_t items[3]) {
  try {
    return groups_at_a_time(*static_cast<const Kernel*>(program.entry), items);
  } catch (const Failure&) {
    return UINT64_MAX;  // a kernel has broken the context: the launch is told which
  }
}

nb::object make_program(std::shared_ptr<Module> module, const std::string& symbol, const std::string& name,
                        const std::vector<std::string>& arguments, const std::vector<std::string>& names, bool typed,
                        std::tuple<uint32_t, uint32_t, uint32_t> wanted, uint32_t local, bool together) {
  auto k = std::make_unique<Kernel>();
  int most_items = 0;
  without_gil([&] {
    Current current(*module->context);
    check("cuModuleGetFunction", api().module_function(&k->function, module->module, symbol.c_str()));
    // Now: a kernel that is loaded at its first launch may wait for all that is under way.
    if (api().function_load) check("cuFuncLoad", api().function_load(k->function));
    check("cuFuncGetAttribute", api().function_attribute(&most_items, kFunctionItems, k->function));
    if (local) allow_local(*module, k->function, local);
  });
  std::vector<Laid> laid;
  auto program = program_elsewhere(name, arguments, names, static_cast<uint64_t>(most_items), wanted, &laid);
  k->module = std::move(module);
  k->local = local;
  k->together = together;
  k->arguments.resize(arguments.size());
  for (const Laid& each : laid) k->arguments[each.index] = Argument{each.offset, each.size};
  if (!typed) {
    in_order(*program, laid);
    for (size_t i = 0; i < arguments.size(); ++i) k->arguments[i].offset = program->in_order[i].offset;
  }
  if (together) program->most_groups = most_groups;
  program->end = end;
  program->entry = k.release();
  return program_capsule(std::move(program));
}
}  // namespace

void bind(nb::module_& m) {
  m.def("cuda_devices", told_devices,
        "What NVIDIA's driver says of its devices, a dict each. Raises DeviceUnavailable where there is none.");
  nb::class_<Context>(m, "CudaContext", "A device's primary context; kept while anything of it is used.")
      .def_prop_ro(
          "sets_signals", [](const Context& c) { return c.words() && c.facts().registers; },
          "Whether streams set signals themselves, where their memory can be mapped for that.")
      .def(
          "allocate",
          [](Context& c, size_t bytes, int use) {
            return without_gil([&] { return c.allocate(bytes, static_cast<Use>(use)); });
          },
          nb::arg("bytes"), nb::arg("use"),
          "Memory of the device (0), of the host (1) or of both (2): its address. Raises MemoryError, RuntimeError.")
      .def(
          "free", [](Context& c, uint64_t at) { return without_gil([&] { return c.free(at); }); }, nb::arg("at"),
          "Give allocate's memory back; nothing may use it any more.")
      .def(
          "reaches", [](Context& c, uint64_t at) { return without_gil([&] { return c.reaches(at); }); }, nb::arg("at"),
          "Whether queues of this device copy from and to an address, with peers made known to it.")
      .def(
          "on_device", [](const Context& c, uint64_t at) { return c.on_device(at); }, nb::arg("at"),
          "Whether an address is of memory that allocate gave out as the device's own.")
      .def(
          "ordinal_of",
          [](Context& c, uint64_t at) {
            return without_gil([&] {
              Current current(c);
              int ordinal = 0;
              check("cuPointerGetAttribute", api().pointer_attribute(&ordinal, kPointerDevice, at));
              return ordinal;
            });
          },
          nb::arg("at"), "The number of the device whose memory an address is. RuntimeError where it is none's.")
      .def(
          "settle",
          [](Context& c) {
            without_gil([&] {
              Current current(c);
              check("cuCtxSynchronize", api().synchronize());
            });
          },
          "Wait for all that anybody has given to the device in this process.")
      .def(
          "broken", [](Context& c) { return without_gil([&] { return c.broken(); }); },
          "Whether an error of a kernel is in the context, after which CUDA does nothing any more.")
      .def(
          "end", [](Context& c) { without_gil([&] { c.end(); }); },
          "End a context that an error of CUDA's has broken; nothing happens to any other.")
      .def(
          "memory",
          [](Context& c) {
            uint64_t free = 0, total = 0;
            without_gil([&] { c.memory(&free, &total); });
            return std::make_tuple(free, total);
          },
          "Bytes free and in all, as the driver sees it.");
  m.def("cuda_open", open, nb::arg("index"), nb::arg("keep"),
        "A device's context; freed memory up to `keep` bytes stays with its pool. Raises DeviceUnavailable.");
  m.def("cuda_serve", serve, nb::arg("device"), nb::arg("context"),
        "Have the commands of a device, which has no queue yet, carried out by CUDA.");
  nb::class_<Module>(m, "CudaModule", "A loaded image; unloaded with the last program of it.")
      .def(
          "declared_local",
          [](const Module& module, const std::string& symbol) {
            return without_gil([&] { return declared_local(module, symbol); });
          },
          nb::arg("symbol"), "Bytes of local memory that a kernel declares, a group. RuntimeError where it is missing.")
      .def(
          "variable",
          [](const Module& module, const std::string& symbol) {
            return without_gil([&] { return variable_of(module, symbol); });
          },
          nb::arg("symbol"), "Address and bytes of a variable; (0, 0): there is none of that name.")
      .def(
          "kernels", [](const Module& module) { return without_gil([&] { return kernels_of(module); }); },
          "The names of its kernels. RuntimeError where the driver is too old to say.")
      .def(
          "parameters",
          [](const Module& module, const std::string& symbol) {
            return without_gil([&] { return parameters_of(module, symbol); });
          },
          nb::arg("symbol"),
          "The size of each parameter of a kernel. RuntimeError where the driver is too old to say.");
  m.def(
      "cuda_module",
      [](std::shared_ptr<Context> context, nb::bytes image) {
        std::string held(image.c_str(), image.size());
        return finalized(without_gil([&] { return load_module(std::move(context), held); }));
      },
      nb::arg("context"), nb::arg("image"), "Load PTX or a cubin. RuntimeError with what the driver said.");
  m.def("cuda_program", make_program, nb::arg("module"), nb::arg("symbol"), nb::arg("name"), nb::arg("arguments"),
        nb::arg("names"), nb::arg("typed"), nb::arg("wanted"), nb::arg("local") = 0, nb::arg("together") = false,
        "What a Program is made of: a kernel of a module, its arguments' types and names in order, the only size of "
        "groups\n"
        "that it takes, (0, 0, 0) for any, and bytes of local memory beside what it declares. RuntimeError where the "
        "module has\n"
        "no such kernel, or the driver refuses.");
  m.def(
      "cuda_load_cufile",
      [](const std::vector<std::string>& names) { return without_gil([&] { return load_cufile(names); }); },
      nb::arg("names"), "Load NVIDIA's cuFile and start it: why it can't be used, or nothing.");
  m.def(
      "cuda_file_facts",
      [] {
        FileFacts f = without_gil([] { return cufile_facts(); });
        return std::make_tuple(f.major, f.minor, f.systems);
      },
      "The version of nvidia-fs (0, 0: it isn't in use), and bits of the file systems that it supports.");
  m.def("cuda_file_system", file_system, nb::arg("descriptor"), "The magic number of an open file's file system.");
  nb::class_<KnownFile>(m, "CudaFile", "A file that cuFile knows. Owns its descriptor.")
      .def(
          nb::new_([](int descriptor) { return without_gil([&] { return std::make_shared<KnownFile>(descriptor); }); }),
          nb::arg("descriptor"))
      .def(
          "read",
          [](const KnownFile& file, Context& context, uint64_t to, size_t bytes, int64_t offset) {
            return without_gil([&] { return file.read(context, to, bytes, offset); });
          },
          nb::arg("context"), nb::arg("to"), nb::arg("bytes"), nb::arg("offset"),
          "Read to the device's memory: (bytes, error), an errno, or cuFile's number below 0. Blocks.");
  m.def(
      "cuda_graphs_made", [] { return g_held.graphs_made.load(); },
      "How many graphs of CUDA were made of bound commands until now; changes that nodes take make none.");
  m.def(
      "cuda_held",
      [] {
        const Held& h = g_held;
        return std::make_tuple(h.contexts.load(), h.streams.load(), h.modules.load(), h.allocations.load(),
                               h.graphs.load(), h.mapped.load());
      },
      "How many contexts, streams, modules, allocations, graphs and mappings of signals of CUDA native code holds.");
}

}  // namespace hcq::cuda
