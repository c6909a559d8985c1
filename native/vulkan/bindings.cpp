// _native.VulkanDevice, VulkanModule, VulkanKernel, and functions about what is here.
#include "vulkan/bindings.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "core/device.hpp"
#include "core/retire.hpp"
#include "python/common.hpp"
#include "python/elsewhere.hpp"
#include "python/refusals.hpp"
#include "vulkan/lane.hpp"

namespace nb = nanobind;

namespace hcq::vk {
namespace {

void set_error(const Failure& failure) {
  bool memory = failure.result == kOutOfHostMemory || failure.result == kOutOfDeviceMemory;
  PyErr_SetString(memory ? PyExc_MemoryError : PyExc_RuntimeError, failure.said.c_str());
}

template <class Work>
auto without_gil(Work work) {
  return call_without_gil(set_error, work);
}

nb::dict words_of(const Facts& f) {
  nb::dict d;
  const Properties& p = f.properties;
  d["name"] = nb::str(p.name);
  d["kind"] = p.kind;
  d["api_version"] = p.api_version;
  d["driver_version"] = p.driver_version;
  d["vendor"] = p.vendor;
  d["device"] = p.device;
  d["driver"] = f.driver;
  d["driver_info"] = f.driver_info;
  d["cache_id"] = nb::bytes(p.cache_id, sizeof p.cache_id);
  d["max_group_size"] =
      nb::make_tuple(p.limits.max_group_size[0], p.limits.max_group_size[1], p.limits.max_group_size[2]);
  d["max_groups"] =
      nb::make_tuple(p.limits.max_group_count[0], p.limits.max_group_count[1], p.limits.max_group_count[2]);
  d["max_group_items"] = p.limits.max_group_invocations;
  d["local_memory"] = p.limits.max_shared_memory;
  d["max_allocation"] = std::min(f.max_allocation, f.max_buffer);
  d["imports"] = f.import_alignment != 0;
  d["calibrated"] = f.calibrated;
  d["timestamp_bits"] = f.timestamp_bits;
  d["subgroup_size"] = f.subgroups.size;
  uint64_t memory = 0;
  for (uint32_t i = 0; i < f.memory.heap_count; ++i)
    if (f.memory.heaps[i].flags & 1) memory += f.memory.heaps[i].size;
  d["memory"] = memory;
  nb::list floats;  // of 16, 32 and 64 bits
  for (int i = 0; i < 3; ++i)
    floats.append(nb::make_tuple(bool(f.floats.keeps_zero_inf_nan[i]), bool(f.floats.rounds_to_even[i]),
                                 bool(f.floats.keeps_denormals[i])));
  d["floats"] = floats;
  nb::dict has;
  has["f64"] = bool(f.features.on[Features::kFloat64]);
  has["i64"] = bool(f.features.on[Features::kInt64]);
  has["i16"] = bool(f.features.on[Features::kInt16]);
  has["i8"] = bool(f.features12.on[Features12::kInt8]);
  has["f16"] = bool(f.features12.on[Features12::kFloat16]);
  has["storage8"] = bool(f.features12.on[Features12::kStorage8]);
  has["storage16"] = bool(f.features11.on[Features11::kStorage16]);
  has["atomics64"] = bool(f.features12.on[Features12::kBufferAtomics64]);
  d["has"] = has;
  return d;
}

nb::list devices(bool validation) {
  auto found = without_gil([&] {
    Loaded& loaded = instance(validation);
    std::vector<Facts> facts;
    for (PhysicalDevice each : loaded.devices) facts.push_back(facts_of(loaded, each));
    return facts;
  });
  nb::list told;
  for (const Facts& each : found) told.append(words_of(each));
  return told;
}

class Device {
 public:
  Device(size_t index, bool validation, bool apart) {
    context_ = without_gil([&] {
      Loaded& loaded = instance(validation);
      if (index >= loaded.devices.size()) throw Unavailable{"that device is gone", "open another"};
      return std::make_shared<Context>(loaded, loaded.devices[index], apart);
    });
    served_ = without_gil([&] { return std::make_shared<Served>(context_); });
  }
  ~Device() {
    if (context_ && context_->generation != g_generation)
      new std::shared_ptr<Served>(std::move(served_));  // its thread is another process's: leaked
    else if (served_)
      without_gil([&] { served_.reset(); });
  }
  Device(const Device&) = delete;

  Context& context() const {
    if (context_->generation != g_generation) {
      raise_forked(context_->generation, "this device");
      throw nb::python_error();
    }
    if (context_->closed()) {
      PyErr_SetString(PyExc_RuntimeError, "the device is closed");
      throw nb::python_error();
    }
    return *context_;
  }
  std::shared_ptr<Context> shared() const { return context(), context_; }
  uint64_t allocate(uint64_t bytes, int use) const {
    Context& c = context();
    return without_gil([&] {
      Presence present(c);
      return c.allocate(bytes, static_cast<Use>(use));
    });
  }
  void free(uint64_t address) const {
    if (context_->usable())
      without_gil([&] {
        std::shared_lock<std::shared_mutex> present(context_->presence);
        context_->free(address);
      });
  }
  void serve(nb::handle device) const {
    context();
    hcq::Device* d = device_of(device.ptr());
    if (!d) throw nb::python_error();
    d->interface = &interface();
    d->context = new std::shared_ptr<Served>(served_);
  }
  std::pair<uint64_t, uint64_t> counts() const { return served_->work->counts(); }
  void stop() const {
    if (context_->generation == g_generation) without_gil([&] { served_->work->stop(); });
  }
  void close(bool patient) const {
    if (context_->generation == g_generation) without_gil([&] { served_->work->close(patient); });
  }

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<Served> served_;
};

// Keeps the memory of a device where it is.
struct Hold {
  explicit Hold(std::shared_ptr<Context> held) : context(std::move(held)) { context->hold(); }
  ~Hold() { context->let_go(); }
  Hold(const Hold&) = delete;
  std::shared_ptr<Context> context;
};

std::shared_ptr<Module> module_of(const Device& device, nb::bytes words) {
  auto context = device.shared();
  if (words.size() == 0 || words.size() % 4) throw nb::value_error("a module is a number of 32-bit words");
  std::vector<uint32_t> aligned(words.size() / 4);
  std::memcpy(aligned.data(), words.c_str(), words.size());
  return without_gil([&] { return std::make_shared<Module>(context, aligned.data(), words.size()); });
}

nb::bytes make_pipeline(std::shared_ptr<Kernel> kernel, std::array<uint32_t, 3> items, nb::bytes cached) {
  std::string before(cached.c_str(), cached.size()), after;
  without_gil([&] { kernel->make(items.data(), before, &after); });
  return nb::bytes(after.data(), after.size());
}

Ready ready(const Program* program, const uint32_t items[3]) {
  const Entry& entry = *static_cast<const Entry*>(program->entry);
  Handle unused = 0;
  if (entry.kernel->find(items, &unused)) return Ready::before;
  Ref sizes(Py_BuildValue("(III)", items[0], items[1], items[2]));
  Ref made(sizes ? PyObject_CallOneArg(static_cast<PyObject*>(entry.make), sizes.get()) : nullptr);
  return made ? Ready::now : Ready::failed;
}

void end(Program* program) {
  auto* entry = static_cast<Entry*>(program->entry);
  retire_object_later(static_cast<PyObject*>(entry->make));
  delete entry;
}

nb::object make_program(std::shared_ptr<Kernel> kernel, const std::string& name, const std::vector<std::string>& types,
                        const std::vector<std::string>& names, const std::vector<uint32_t>& offsets, bool in_memory,
                        uint64_t most_items, nb::object make) {
  std::vector<Laid> laid;
  auto program = program_elsewhere(name, types, names, most_items, {0, 0, 0}, &laid);
  for (const Laid& each : laid) {
    Argument argument{each.offset, offsets.empty() ? each.offset : offsets.at(each.index), each.size};
    kernel->argument_bytes = std::max(kernel->argument_bytes, argument.to + argument.bytes);
    if (each.pointer) kernel->addresses.push_back(argument);
    if (!offsets.empty()) kernel->arguments.push_back(argument);
  }
  if (offsets.empty()) kernel->arguments.push_back({0, 0, kernel->argument_bytes});
  kernel->in_memory = in_memory;
  if (!in_memory && kernel->argument_bytes > kPushBytes - kHead) throw nb::value_error("too much to push");
  program->end = end;
  program->ready = ready;
  program->entry = new Entry{std::move(kernel), make.release().ptr()};
  return program_capsule(std::move(program));
}

nb::dict alive() {
  static const char* names[] = {"device",   "memory", "buffer",    "module", "layout",
                                "pipeline", "cache",  "semaphore", "pool",   "queries"};
  nb::dict counts;
  for (size_t i = 0; i < static_cast<size_t>(Kind::count); ++i) counts[names[i]] = g_alive[i].load();
  return counts;
}
}  // namespace

void bind(nb::module_& m) {
  nb::set_leak_warnings(false);  // devices stay open until the process ends, unless somebody closes them
  nb::class_<Kernel>(m, "VulkanKernel", "A kernel of a module, and its pipelines.")
      .def(nb::new_([](std::shared_ptr<Module> module, std::string entry) {
             auto made = std::make_shared<Kernel>();
             made->module = std::move(module);
             made->entry = std::move(entry);
             return made;
           }),
           nb::arg("module"), nb::arg("entry"))
      .def("make", make_pipeline, nb::arg("items"), nb::arg("cached"),
           "Make the pipeline for groups of `items`; what the driver's cache has of it then.");
  nb::class_<Module>(m, "VulkanModule", "A module of SPIR-V on a device.");
  nb::class_<Hold>(m, "VulkanHold", "Keeps a device's memory where it is.");
  nb::class_<Device>(m, "VulkanDevice", "An open Vulkan device.")
      .def(nb::init<size_t, bool, bool>(), nb::arg("index"), nb::arg("validation"), nb::arg("apart"))
      .def_prop_ro("unified", [](const Device& d) { return d.context().unified; })
      .def_prop_ro("allocated", [](const Device& d) { return d.context().allocated(); })
      .def("allocate", &Device::allocate, nb::arg("bytes"), nb::arg("use"),
           "An address: of the device's own memory (0), the host's (1), or both's (2). MemoryError.")
      .def(
          "hold",
          [](const Device& d) {
            auto context = d.shared();
            return without_gil([&] {
              Presence present(*context);
              return new Hold(context);
            });
          },
          "Keeps the memory, beyond closing.")
      .def("free", &Device::free, nb::arg("address"))
      .def("module", module_of, nb::arg("words"))
      .def("serve", &Device::serve, nb::arg("device"),
           "Have the commands of a device, which has no queue yet, carried out by Vulkan.")
      .def_prop_ro("given", &Device::counts, "Pieces of work given to Vulkan, and calls that it took.")
      .def("stop", &Device::stop, "Take no more work, and end the thread that sees to it; all else stays.")
      .def("close", &Device::close, nb::arg("patient"), "Wait for what is under way, where patient, and end it all.")
      .def(
          "fail_next", [](const Device& d, int32_t result) { d.context().failing.store(result); }, nb::arg("result"),
          "For tests: the next submit is answered with this VkResult.");
  m.def("vulkan_program", make_program, nb::arg("kernel"), nb::arg("name"), nb::arg("types"), nb::arg("names"),
        nb::arg("offsets"), nb::arg("in_memory"), nb::arg("most_items"), nb::arg("make"),
        "What a Program is made of: its arguments' types, names, and places among the kernel's, empty for where they\n"
        "lie in kernargs; `make(items)` is called before a launch in groups of another size than those before.");
  m.def("vulkan_devices", devices, nb::arg("validation"),
        "What devices there are. DeviceUnavailable where there are none.");
  m.def("vulkan_has_validation", [] { return without_gil(has_validation); });
  m.def("vulkan_messages", take_messages, "What the validation layer has said since the last time.");
  m.def("vulkan_alive", alive, "API objects alive in this process, by kind.");
}

}  // namespace hcq::vk
