// _native.VulkanDevice, VulkanModule, VulkanPipeline, VulkanCommands, and functions about what is here.
#include "vulkan/bindings.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/common.hpp"
#include "python/refusals.hpp"
#include "vulkan/queue.hpp"

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

uint64_t number(PyObject* tuple, Py_ssize_t index) {
  uint64_t value = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, index));
  if (value == static_cast<uint64_t>(-1) && PyErr_Occurred()) throw nb::python_error();
  return value;
}

// The words of hcq.drivers.vulkan.queue: tuples that begin with a command's name.
Command command_of(PyObject* word) {
  if (!PyTuple_CheckExact(word) || PyTuple_GET_SIZE(word) < 1) throw nb::type_error("a word is a tuple");
  Py_ssize_t count = PyTuple_GET_SIZE(word);
  Command command{};
  auto expect = [&](Py_ssize_t wanted) {
    if (count != wanted) throw nb::type_error("a word of another length");
  };
  switch (PyUnicode_ReadChar(PyTuple_GET_ITEM(word, 0), 0)) {
    case 's':
    case 'w':
    case 't': {
      PyObject* name = PyTuple_GET_ITEM(word, 0);
      Py_UCS4 first = PyUnicode_ReadChar(name, 0);
      command.op = first == 's' ? Op::signal : first == 'w' ? Op::wait : Op::timestamp;
      expect(first == 't' ? 2 : 3);
      command.object = PyTuple_GET_ITEM(word, 1);
      Signal* signal = signal_of(PyTuple_GET_ITEM(word, 1));
      if (!signal) throw nb::python_error();
      command.signal = signal->memory;
      if (first != 't') command.value = number(word, 2);
      break;
    }
    case 'b':
      command.op = Op::barrier;
      break;
    case 'e': {
      expect(4);
      command.op = Op::exec;
      nb::handle pipeline(PyTuple_GET_ITEM(word, 1));
      if (!nb::isinstance<Pipeline>(pipeline)) throw nb::type_error("expected a VulkanPipeline");
      command.pipeline = nb::inst_ptr<Pipeline>(pipeline);
      command.arguments = reinterpret_cast<const uint8_t*>(number(word, 2));
      PyObject* groups = PyTuple_GET_ITEM(word, 3);
      for (int i = 0; i < 3; ++i) command.groups[i] = static_cast<uint32_t>(number(groups, i));
      break;
    }
    case 'c':
      expect(4);
      command.op = Op::copy;
      command.destination = number(word, 1);
      command.source = number(word, 2);
      command.bytes = number(word, 3);
      break;
    default:
      throw nb::type_error("no such word");
  }
  return command;
}

std::shared_ptr<Commands> commands_of(nb::list words, bool bound) {
  auto commands = std::make_shared<Commands>();
  commands->bound = bound;
  commands->list.reserve(words.size());
  for (nb::handle each : words) commands->list.push_back(command_of(each.ptr()));
  return commands;
}

class Device {
 public:
  Device(size_t index, bool validation, bool apart, nb::object lost, nb::object failed) {
    context_ = without_gil([&] {
      Loaded& loaded = instance(validation);
      if (index >= loaded.devices.size()) throw Unavailable{"that device is gone", "open another"};
      return std::make_shared<Context>(loaded, loaded.devices[index], apart);
    });
    Listener listener;
    // Held for good by functions that threads without the GIL copy nothing of; given up with the device.
    lost_ = lost;
    failed_ = failed;
    listener.lost = [this](const std::string& why, const std::string& command) {
      GilTaken gil;
      try {
        lost_(why, command);
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("hcq: telling of a lost device");
      }
    };
    listener.failed = [this](const Commands& commands, size_t at) {
      GilTaken gil;
      try {
        nb::list rest;
        for (size_t i = at; i < commands.list.size(); ++i) {
          const Command& each = commands.list[i];
          if (each.op == Op::signal)
            rest.append(nb::make_tuple(nb::handle(static_cast<PyObject*>(each.object)), each.value));
        }
        const Command& wait = commands.list[at];
        return nb::cast<int>(failed_(nb::handle(static_cast<PyObject*>(wait.object)), wait.value, rest));
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("hcq: a wait that failed");
        return -1;
      }
    };
    queue_ = without_gil([&] { return std::make_shared<Queue>(context_, std::move(listener)); });
  }
  ~Device() {
    if (!context_ || context_->generation == g_generation) {
      if (context_) close();
      return;
    }
    new std::shared_ptr<Queue>(std::move(queue_));  // its threads are another process's: leaked
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
  bool submit(unsigned lane, std::shared_ptr<Commands> commands) const {
    context();
    auto queue = queue_;  // another thread may close the device meanwhile
    if (!queue) {
      PyErr_SetString(PyExc_RuntimeError, "the device is closed");
      throw nb::python_error();
    }
    if (lane > 1) throw nb::value_error("lanes are 0 and 1");
    return without_gil([&] {
      Presence present(*context_);
      try {
        return queue->submit(lane, std::move(commands));
      } catch (const Failure&) {
        context_->lost.store(true);
        throw;
      }
    });
  }
  void help(nb::handle signal, uint64_t value) const {
    Signal* found = signal_of(signal.ptr());
    if (!found) throw nb::python_error();
    if (auto queue = context_->usable() ? queue_ : nullptr) without_gil([&] { queue->help(found->memory, value); });
  }
  void give_up() const {
    if (auto queue = context_->usable() ? queue_ : nullptr)
      without_gil([&] {
        context_->lost.store(true);
        queue->give_up();
      });
  }
  void stop() const {
    if (auto queue = context_->usable() ? queue_ : nullptr) without_gil([&] { queue->end_threads(); });
  }
  void close() {
    if (context_->generation != g_generation) return;
    auto queue = std::move(queue_);
    without_gil([&] {
      if (queue) queue->stop();  // its threads may be in a call of Python that comes here: present, not closing
      std::unique_lock<std::shared_mutex> alone(context_->presence);
      context_->close();
      queue.reset();
    });
    lost_ = failed_ = nb::none();
  }

 private:
  std::shared_ptr<Context> context_;
  nb::object lost_, failed_;
  std::shared_ptr<Queue> queue_;
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

nb::tuple pipeline_of(std::shared_ptr<Module> module, const std::string& entry, const std::string& name,
                      std::array<uint32_t, 3> items, nb::bytes cached, uint32_t argument_bytes, uint32_t buffers,
                      bool in_memory) {
  std::string before(cached.c_str(), cached.size()), after;
  Handle handle = without_gil([&] { return module->pipeline(entry, items.data(), before, &after); });
  Pipeline made{module, handle, name, argument_bytes, buffers, in_memory};
  return nb::make_tuple(nb::cast(std::move(made)), nb::bytes(after.data(), after.size()));
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
  nb::class_<Commands>(m, "VulkanCommands", "Commands that are submitted more than once, and what is recorded of them.")
      .def("__init__", [](Commands* self, nb::list words) {
        new (self) Commands();
        self->bound = true;
        for (nb::handle each : words) self->list.push_back(command_of(each.ptr()));
      });
  nb::class_<Pipeline>(m, "VulkanPipeline", "A kernel for one size of group.");
  nb::class_<Module>(m, "VulkanModule", "A module of SPIR-V on a device.");
  nb::class_<Hold>(m, "VulkanHold", "Keeps a device's memory where it is.");
  nb::class_<Device>(m, "VulkanDevice", "An open Vulkan device with two lanes of submits, compute (0) and copy (1).")
      .def(nb::init<size_t, bool, bool, nb::object, nb::object>(), nb::arg("index"), nb::arg("validation"),
           nb::arg("apart"), nb::arg("lost"), nb::arg("failed"))
      .def_prop_ro("unified", [](const Device& d) { return d.context().unified; })
      .def_prop_ro("allocated", [](const Device& d) { return d.context().allocated(); })
      .def("allocate", &Device::allocate, nb::arg("bytes"), nb::arg("use"),
           "An address: of the device's own memory (0), the host's (1), or both's (2). MemoryError.")
      .def(
          "seen_by_device",
          [](const Device& d, uint64_t address) {
            Place at;
            return d.context().find(address, &at) ? at.device_address : address;
          },
          nb::arg("address"), "An address of memory that was allocated here, or is within, as kernels see it.")
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
      .def(
          "submit",
          [](const Device& d, unsigned lane, nb::list words) { return d.submit(lane, commands_of(words, false)); },
          nb::arg("lane"), nb::arg("words"), "Queue commands; False: no room. Raises where the device fails.")
      .def("submit_bound", &Device::submit, nb::arg("lane"), nb::arg("commands"))
      .def("help", &Device::help, nb::arg("signal"), nb::arg("value"),
           "Before waiting for a signal: wait for the work that is to set it, for a moment.")
      .def("module", module_of, nb::arg("words"))
      .def("give_up", &Device::give_up, "End the threads: the device is lost.")
      .def("stop", &Device::stop, "End the threads and wait for them; all else stays.")
      .def("close", &Device::close)
      .def(
          "fail_next", [](const Device& d, int32_t result) { d.context().failing.store(result); }, nb::arg("result"),
          "For tests: the next submit is answered with this VkResult.");
  m.def("vulkan_pipeline", pipeline_of, nb::arg("module"), nb::arg("entry"), nb::arg("name"), nb::arg("items"),
        nb::arg("cached"), nb::arg("argument_bytes"), nb::arg("buffers"), nb::arg("in_memory"),
        "The pipeline for groups of `items`, and the driver's cache of it.");
  m.def("vulkan_devices", devices, nb::arg("validation"),
        "What devices there are. DeviceUnavailable where there are none.");
  m.def("vulkan_has_validation", [] { return without_gil(has_validation); });
  m.def("vulkan_messages", take_messages, "What the validation layer has said since the last time.");
  m.def("vulkan_alive", alive, "API objects alive in this process, by kind.");
}

}  // namespace hcq::vk
