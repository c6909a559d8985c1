// Images by address, and copies from and to them (images.hpp).
#include "opencl/images.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "platform/platform.hpp"

namespace hcq::opencl {

namespace {
// By their first address. The lock is a leaf; the count lets copies of other memory pass without it (relaxed: whoever
// copies an image was given its address after it was counted).
std::mutex g_lock;
std::map<uint64_t, std::shared_ptr<Image>> g_images;
std::atomic<size_t> g_count{0};

// A part of an image that is a rectangle: at most three make a range of bytes.
struct Part {
  size_t origin[3], region[3];
  uint64_t at;  // in the range
};

bool parts_of(const Image& image, uint64_t address, uint64_t bytes, Part out[3], int* count, std::string* error) {
  uint64_t first = address - image.start, last = first + bytes;
  if (last > image.bytes() || first % image.pixel || last % image.pixel) {
    *error = "bytes " + std::to_string(first) + " to " + std::to_string(last) + " of an image of " +
             std::to_string(image.bytes()) + " bytes, " + std::to_string(image.pixel) +
             " a pixel: whole pixels can be copied";
    return false;
  }
  *count = 0;
  for (uint64_t at = first; at < last;) {
    uint64_t x = at % image.row() / image.pixel, y = at / image.row();
    uint64_t rows = x ? 0 : (last - at) / image.row();  // whole ones
    uint64_t wide = rows ? image.width : std::min(image.width - x, (last - at) / image.pixel);
    Part& part = out[(*count)++];
    part = Part{{x, y, 0}, {wide, rows ? rows : 1, 1}, at - first};
    at += wide * image.pixel * part.region[1];
  }
  return true;
}

// From an image (`reads`) to memory that the host reaches, or back. The event is the last part's.
bool move(Handle queue, const Image& image, uint64_t address, uint64_t bytes, uint8_t* host, bool reads, Handle* event,
          std::string* error) {
  Part parts[3];
  int count;
  if (!parts_of(image, address, bytes, parts, &count, error)) return false;
  for (int i = 0; i < count; ++i) {
    const Part& p = parts[i];
    Handle* its = i == count - 1 ? event : nullptr;
    if (reads ? failed(api().clEnqueueReadImage(queue, image.memory, 0, p.origin, p.region, 0, 0, host + p.at, 0,
                                                nullptr, its),
                       "clEnqueueReadImage", error)
              : failed(api().clEnqueueWriteImage(queue, image.memory, 0, p.origin, p.region, 0, 0, host + p.at, 0,
                                                 nullptr, its),
                       "clEnqueueWriteImage", error))
      return false;
  }
  return true;
}

bool alike(const Image& a, const Image& b) {
  return a.width == b.width && a.height == b.height && a.format.order == b.format.order &&
         a.format.type == b.format.type;
}

// Shared memory that the host may not touch.
bool move_shared(Handle queue, void* to, const void* from, uint64_t bytes, Handle* event, std::string* error) {
  return !failed(api().clEnqueueSVMMemcpy(queue, 0, to, from, bytes, 0, nullptr, event), "clEnqueueSVMMemcpy", error);
}
}  // namespace

Image::~Image() {
  if (memory) {
    api().clReleaseMemObject(memory);
    --g_held.images;
  }
  if (start) unmap_memory(reinterpret_cast<void*>(start), bytes());
}

std::shared_ptr<Image> image_make(Handle context, ImageFormat format, uint64_t width, uint64_t height, uint64_t pixel,
                                  Status* status) {
  auto image = std::make_shared<Image>();
  image->context = context;
  image->format = format;
  image->width = width;
  image->height = height;
  image->pixel = pixel;
  ImageShape shape{};
  shape.kind = kImage2D;
  shape.width = width;
  shape.height = height;
  image->memory = api().clCreateImage(context, kReadWrite, &format, &shape, nullptr, status);
  if (!image->memory) return nullptr;
  ++g_held.images;
  image->start = reinterpret_cast<uint64_t>(reserve_addresses(image->bytes()));
  if (!image->start) {
    *status = kNoHostMemory;
    return nullptr;
  }
  std::lock_guard<std::mutex> guard(g_lock);
  g_images[image->start] = image;
  g_count.store(g_images.size(), std::memory_order_relaxed);
  return image;
}

void image_end(uint64_t start) {
  std::shared_ptr<Image> last;  // ends after the lock
  std::lock_guard<std::mutex> guard(g_lock);
  auto found = g_images.find(start);
  if (found == g_images.end()) return;
  last = std::move(found->second);
  g_images.erase(found);
  g_count.store(g_images.size(), std::memory_order_relaxed);
}

std::shared_ptr<Image> image_at(uint64_t address) {
  if (!g_count.load(std::memory_order_relaxed)) return nullptr;
  std::lock_guard<std::mutex> guard(g_lock);
  auto above = g_images.upper_bound(address);
  if (above == g_images.begin()) return nullptr;
  const std::shared_ptr<Image>& image = std::prev(above)->second;
  return address < image->start + image->bytes() ? image : nullptr;
}

bool copy_images(const Lane& lane, const Image* to, uint64_t destination, const Image* from, uint64_t source,
                 uint64_t bytes, Command* out, std::string* error) {
  for (const Image* image : {to, from}) {
    if (image && image->context != lane.context.context) {
      *error = "the image is another device's";
      return false;
    }
  }
  bool whole = to && from && bytes == to->bytes() && destination == to->start && source == from->start;
  bool done;
  if (whole && alike(*to, *from)) {
    const size_t origin[3] = {}, region[3] = {to->width, to->height, 1};
    done = !failed(
        api().clEnqueueCopyImage(lane.queue, from->memory, to->memory, origin, origin, region, 0, nullptr, &out->event),
        "clEnqueueCopyImage", error);
  } else if (lane.context.reached && !(to && from)) {
    done =
        to ? move(lane.queue, *to, destination, bytes, reinterpret_cast<uint8_t*>(source), false, &out->event, error)
           : move(lane.queue, *from, source, bytes, reinterpret_cast<uint8_t*>(destination), true, &out->event, error);
  } else {
    auto* between = static_cast<uint8_t*>(std::malloc(bytes));
    if (!between) {
      *error = "no memory for a copy of " + std::to_string(bytes) + " bytes of an image";
      return false;
    }
    done = (from ? move(lane.queue, *from, source, bytes, between, true, nullptr, error)
                 : move_shared(lane.queue, between, reinterpret_cast<void*>(source), bytes, nullptr, error)) &&
           (to ? move(lane.queue, *to, destination, bytes, between, false, &out->event, error)
               : move_shared(lane.queue, reinterpret_cast<void*>(destination), between, bytes, &out->event, error));
    if (done) out->scratch = between;  // else leaked: a copy into it may be under way
  }
  if (done) g_held.events.fetch_add(1, std::memory_order_relaxed);
  return done;
}

}  // namespace hcq::opencl
