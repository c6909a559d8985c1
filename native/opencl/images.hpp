// Images: OpenCL's objects, which have no address, under addresses that nothing is behind. So buffers, kernargs,
// copies, graphs and checks know an image as they know other memory, and whoever reads or writes there himself is
// stopped.
#pragma once
#include <memory>
#include <string>

#include "core/interface.hpp"
#include "opencl/commands.hpp"

namespace hcq::opencl {

// Two dimensions. Its bytes, for copies, are its rows one after the other, without a gap.
struct Image {
  Handle context = nullptr, memory = nullptr;
  ImageFormat format{};
  uint64_t width = 0, height = 0;
  uint64_t pixel = 0;  // bytes
  uint64_t start = 0;  // the address
  uint64_t row() const { return width * pixel; }
  uint64_t bytes() const { return row() * height; }
  ~Image();
};

// A new one, which is found by its addresses until image_end. Null: why not is in `status`, or there is no address
// space (CL_OUT_OF_HOST_MEMORY). Any thread.
std::shared_ptr<Image> image_make(Handle context, ImageFormat format, uint64_t width, uint64_t height, uint64_t pixel,
                                  Status* status);
void image_end(uint64_t start);
// The image that has this address, or null; costs next to nothing while there are no images. Any thread.
std::shared_ptr<Image> image_at(uint64_t address);

// A copy of which one side at least is an image. In the lane's order, as Interface::copy.
bool copy_images(const Lane& lane, const Image* to, uint64_t destination, const Image* from, uint64_t source,
                 uint64_t bytes, Command* out, std::string* error);

}  // namespace hcq::opencl
