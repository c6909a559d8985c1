// The registry of ranges: see memory.hpp. What does not live here: the API's entries (memory_api.cpp, pointer.cpp).
#include "memory/memory.hpp"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <shared_mutex>

namespace cudacpu {
namespace {

struct Registry {
  std::shared_mutex lock;  // guards the rest; nothing is called under it
  std::map<uint64_t, RangePtr> ranges;
  std::vector<RangePtr> kept;  // few: one for each free that is queued
  uint64_t next_id = 1;
};

Registry& registry() {
  static auto* one = new Registry();  // never destroyed: threads look addresses up until the process is gone
  return *one;
}

}  // namespace

bool add_range(const RangePtr& range) {
  std::lock_guard<std::shared_mutex> hold(registry().lock);
  auto& ranges = registry().ranges;
  auto after = ranges.lower_bound(range->base);
  if (after != ranges.end() && after->first < range->base + range->bytes) return false;
  if (after != ranges.begin()) {
    const Range& before = *std::prev(after)->second;
    if (range->base < before.base + before.bytes) return false;
  }
  range->id = registry().next_id++;
  ranges.emplace_hint(after, range->base, range);
  return true;
}

RangePtr find_range(uint64_t address) {
  std::shared_lock<std::shared_mutex> hold(registry().lock);
  auto after = registry().ranges.upper_bound(address);
  if (after == registry().ranges.begin()) return nullptr;
  const RangePtr& range = std::prev(after)->second;
  return address - range->base < range->bytes ? range : nullptr;
}

RangePtr remove_range(uint64_t base) {
  std::lock_guard<std::shared_mutex> hold(registry().lock);
  auto found = registry().ranges.find(base);
  if (found == registry().ranges.end()) return nullptr;
  RangePtr range = std::move(found->second);
  registry().ranges.erase(found);
  return range;
}

void keep_for_queued(const RangePtr& range) {
  std::lock_guard<std::shared_mutex> hold(registry().lock);
  registry().kept.push_back(range);
}

void leave(const RangePtr& range) {
  std::lock_guard<std::shared_mutex> hold(registry().lock);
  auto& kept = registry().kept;
  kept.erase(std::remove(kept.begin(), kept.end(), range), kept.end());
}

RangePtr find_usable(uint64_t address) {
  if (RangePtr range = find_range(address)) return range;
  std::shared_lock<std::shared_mutex> hold(registry().lock);
  for (const RangePtr& range : registry().kept)
    if (address - range->base < range->bytes) return range;
  return nullptr;
}

std::vector<RangePtr> ranges_of(const Context& context) {
  std::vector<RangePtr> found;
  std::shared_lock<std::shared_mutex> hold(registry().lock);
  for (const auto& [base, range] : registry().ranges) {
    if (range->context == &context) found.push_back(range);
  }
  return found;
}

bool inside(uint64_t address, size_t bytes, bool unknown) {
  if (address + bytes < address) return false;
  std::shared_lock<std::shared_mutex> hold(registry().lock);
  auto after = registry().ranges.upper_bound(address);
  if (after != registry().ranges.begin()) {
    const Range& range = *std::prev(after)->second;
    if (address - range.base < range.bytes) return bytes <= range.bytes - (address - range.base);
    // One past the end of a range is no place for anything but nothing.
    if (address == range.base + range.bytes && bytes == 0) return true;
  }
  if (!unknown || !address) return false;
  return after == registry().ranges.end() || bytes <= after->first - address;
}

bool checking() {
  static const bool on = [] {
    const char* value = std::getenv("HCQ_CUDACPU_CHECK");
    if (!value || !*value) return false;
    for (const char* off : {"0", "false", "no", "off"})  // as hcq's other switches (config.py)
      if (!strcasecmp(value, off)) return false;
    return true;
  }();
  return on;
}

}  // namespace cudacpu
