// Finding and making a kernel's pipelines.
#include "vulkan/kernel.hpp"

#include <cstring>

namespace hcq::vk {

bool Kernel::find(const uint32_t items[3], Handle* pipeline) const {
  bool found = false;
  lock_.lock();
  for (const Sized& each : pipelines_)
    if (!std::memcmp(each.items, items, sizeof each.items)) *pipeline = each.pipeline, found = true;
  lock_.unlock();
  return found;
}

void Kernel::make(const uint32_t items[3], const std::string& cached, std::string* cache) {
  std::lock_guard<std::mutex> guard(making_);
  Handle pipeline = 0;
  if (find(items, &pipeline)) return;
  Sized made{{items[0], items[1], items[2]}, module->pipeline(entry, items, cached, cache)};
  std::vector<Sized> more;
  more.reserve(pipelines_.size() + 1);  // not under the other lock
  more = pipelines_;
  more.push_back(made);
  lock_.lock();
  pipelines_.swap(more);
  lock_.unlock();
}

}  // namespace hcq::vk
