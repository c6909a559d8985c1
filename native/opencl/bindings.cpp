// What the OpenCL driver in Python calls: loading the functions, giving a device its interface, making programs.
#include "opencl/bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <tuple>

#include "core/device.hpp"
#include "opencl/images.hpp"
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

void serve(nb::handle device, uint64_t context, uint64_t cl_device, bool reached) {
  Device* d = device_of(device.ptr());
  if (!d) throw nb::python_error();
  auto* c = new opencl::Context{reinterpret_cast<void*>(context), reinterpret_cast<void*>(cl_device), reached};
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

bool takes(const Program& program, size_t pointer, uint64_t address, std::string* why) {
  const auto& k = *static_cast<const opencl::Kernel*>(program.entry);
  bool wanted = k.arguments[pointer].image;
  std::shared_ptr<opencl::Image> image = opencl::image_at(address);
  if (!image && !wanted) return true;
  if (!wanted)
    *why = "is an image, and the kernel takes a pointer: copy it to a buffer without BufferOptions(image=...)";
  else if (!image)
    *why = "is no image, and the kernel takes an image2d_t: expected BufferOptions(image=(dtype, (height, width, 4)))";
  else if (image->context != k.context)
    *why = "is an image of another device: copy it with hcq.copy";
  else if (image->start != address)
    *why =
        "is a part of an image, from byte " + std::to_string(address - image->start) + " on: kernels take whole ones";
  return why->empty();
}

nb::object make_program(const std::string& name, uint64_t kernel, uint64_t context,
                        const std::vector<std::string>& arguments, const std::vector<std::string>& names,
                        uint64_t most_items, std::tuple<uint32_t, uint32_t, uint32_t> wanted) {
  std::vector<Laid> laid;
  auto program = program_elsewhere(name, arguments, names, most_items, wanted, &laid);
  auto k = std::make_unique<opencl::Kernel>();
  k->kernel = reinterpret_cast<void*>(kernel);
  k->context = reinterpret_cast<void*>(context);
  for (const Laid& each : laid)
    k->arguments.push_back(opencl::Argument{each.index, each.offset, each.size, each.pointer,
                                            each.pointer && arguments[each.index].rfind("image", 0) == 0});
  program->takes = takes;
  program->end = end;
  api().clRetainKernel(k->kernel);
  ++opencl::g_held.kernels;
  program->entry = k.release();
  return program_capsule(std::move(program));
}

// What an image lives by. A child inherits it, and leaves all of it alone.
struct HeldImage {
  uint64_t start;
  uint32_t generation = g_generation;
};

nb::tuple make_image(uint64_t context, uint32_t order, uint32_t type, uint64_t width, uint64_t height, uint64_t pixel) {
  opencl::Status status = opencl::kSuccess;
  std::shared_ptr<opencl::Image> image =
      opencl::image_make(reinterpret_cast<void*>(context), {order, type}, width, height, pixel, &status);
  if (!image) return nb::make_tuple(nb::none(), 0, opencl::status_name(status));
  nb::capsule held(new HeldImage{image->start}, [](void* pointer) noexcept {
    auto* its = static_cast<HeldImage*>(pointer);
    if (its->generation == g_generation) opencl::image_end(its->start);
    delete its;
  });
  return nb::make_tuple(held, image->start, "");
}
}  // namespace

void bind_opencl(nb::module_& m) {
  m.def("opencl_load", load, nb::arg("library"),
        "Find OpenCL's functions in a library or in what that was linked with; RuntimeError where one is missing.");
  m.def("opencl_serve", serve, nb::arg("device"), nb::arg("context"), nb::arg("cl_device"), nb::arg("reached"),
        "Have the commands of a device, which has no queue yet, carried out by OpenCL; handles as numbers. `reached`: "
        "the\n"
        "host reads and writes its memory.");
  m.def("opencl_program", make_program, nb::arg("name"), nb::arg("kernel"), nb::arg("context"), nb::arg("arguments"),
        nb::arg("names"), nb::arg("most_items"), nb::arg("wanted"),
        "What a Program is made of, around a cl_kernel of a context: its arguments' types and names in order, the "
        "largest\n"
        "group, and the only one that it takes, (0, 0, 0) for any.");
  m.def("opencl_image", make_image, nb::arg("context"), nb::arg("order"), nb::arg("type"), nb::arg("width"),
        nb::arg("height"), nb::arg("pixel"),
        "An image of two dimensions, `pixel` bytes each: what keeps it, its address, and ''; or None, 0 and OpenCL's "
        "error.");
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
        return std::make_tuple(h.contexts.load(), h.queues.load(), h.kernels.load(), h.events.load(), h.images.load());
      },
      "How many contexts, queues, kernels, events and images of OpenCL native code holds.");
}

}  // namespace hcq
