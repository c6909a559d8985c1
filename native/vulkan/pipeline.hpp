// Shader modules and their pipelines, one a size of group.
#pragma once
#include <string>
#include <vector>

#include "vulkan/context.hpp"

namespace hcq::vk {

constexpr uint32_t kPushBytes = 128;  // that every device has
constexpr uint32_t kHead = 16;        // bytes before the arguments: the numbers of groups, and 4 unused

// A module of SPIR-V as the device has it. The members' owner drops it before the device goes.
class Module {
 public:
  // `words`: a whole module. Throws Failure.
  Module(std::shared_ptr<Context> context, const void* words, size_t bytes);
  ~Module();
  Module(const Module&) = delete;

  // The pipeline for groups of that size, and what the driver's cache holds of it afterwards. `name`: the entry point.
  // `cached`: what it held before; may be empty. Throws Failure. Blocks while the driver compiles.
  Handle pipeline(const std::string& name, const uint32_t items[3], const std::string& cached, std::string* cache);
  Handle layout() const { return layout_; }
  void drop();  // frees what the device has; under Context::objects_lock

 private:
  std::shared_ptr<Context> context_;
  Handle module_ = 0, layout_ = 0;
  std::vector<Handle> pipelines_;
};

}  // namespace hcq::vk
