// Making modules and pipelines, and taking them down.
#include "vulkan/pipeline.hpp"

namespace hcq::vk {

Module::Module(std::shared_ptr<Context> context, const void* words, size_t bytes) : context_(std::move(context)) {
  Presence present(*context_);
  auto& call = context_->call;
  auto info = make<ShaderModuleCreateInfo>(kShaderModuleCreateInfo);
  info.size = bytes;
  info.code = static_cast<const uint32_t*>(words);
  check("vkCreateShaderModule", call.CreateShaderModule(context_->device, &info, nullptr, &module_));
  made(Kind::module);
  PushConstantRange range{kStageCompute, 0, kPushBytes};
  auto layout = make<PipelineLayoutCreateInfo>(kPipelineLayoutCreateInfo);
  layout.range_count = 1;
  layout.ranges = &range;
  int32_t result = call.CreatePipelineLayout(context_->device, &layout, nullptr, &layout_);
  std::lock_guard<std::mutex> guard(context_->objects_lock);
  if (result != kSuccess) {
    layout_ = 0;
    drop();
    check("vkCreatePipelineLayout", result);
  }
  made(Kind::layout);
  context_->modules.insert(this);
}

Module::~Module() {
  if (!context_->usable()) return;
  std::lock_guard<std::mutex> guard(context_->objects_lock);
  context_->modules.erase(this);
  drop();
}

void Module::drop() {
  auto& call = context_->call;
  for (Handle each : pipelines_) call.DestroyPipeline(context_->device, each, nullptr), gone(Kind::pipeline);
  pipelines_.clear();
  if (layout_) call.DestroyPipelineLayout(context_->device, layout_, nullptr), gone(Kind::layout);
  if (module_) call.DestroyShaderModule(context_->device, module_, nullptr), gone(Kind::module);
  layout_ = module_ = 0;
}

Handle Module::pipeline(const std::string& name, const uint32_t items[3], const std::string& cached,
                        std::string* cache) {
  Presence present(*context_);
  auto& call = context_->call;
  auto cache_info = make<PipelineCacheCreateInfo>(kPipelineCacheCreateInfo);
  cache_info.size = cached.size();
  cache_info.data = cached.empty() ? nullptr : cached.data();
  Handle store = 0, made_here = 0;
  check("vkCreatePipelineCache", call.CreatePipelineCache(context_->device, &cache_info, nullptr, &store));
  SpecializationEntry entries[3];
  for (uint32_t i = 0; i < 3; ++i) entries[i] = {i, i * 4, 4};
  SpecializationInfo sizes{3, entries, 12, items};
  auto info = make<ComputePipelineCreateInfo>(kComputePipelineCreateInfo);
  info.stage = make<PipelineShaderStageCreateInfo>(kPipelineShaderStageCreateInfo);
  info.stage.stage = kStageCompute;
  info.stage.module = module_;
  info.stage.name = name.c_str();
  info.stage.specialization = &sizes;
  info.layout = layout_;
  info.base_index = -1;
  int32_t result = call.CreateComputePipelines(context_->device, store, 1, &info, nullptr, &made_here);
  size_t size = 0;
  if (result == kSuccess && cache && call.GetPipelineCacheData(context_->device, store, &size, nullptr) == kSuccess) {
    cache->resize(size);
    if (call.GetPipelineCacheData(context_->device, store, &size, cache->data()) < kSuccess) size = 0;
    cache->resize(size);
  }
  call.DestroyPipelineCache(context_->device, store, nullptr);
  check("vkCreateComputePipelines", result);
  made(Kind::pipeline);
  std::lock_guard<std::mutex> guard(context_->objects_lock);
  pipelines_.push_back(made_here);
  return made_here;
}

}  // namespace hcq::vk
