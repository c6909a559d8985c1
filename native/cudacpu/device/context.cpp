// Contexts: see context.hpp. What does not live here: the API's entries for them (context_api.cpp).
#include "device/context.hpp"

#include <utility>

#include "api/handle.hpp"
#include "api/log.hpp"
#include "graph/capture.hpp"
#include "stream/stream.hpp"

namespace cudacpu {
namespace {

// A thread's stack of contexts. Nothing is destroyed when a thread ends: what others destroy then may still ask.
struct Link {
  Context* context;
  Link* below;
};
thread_local Link* top = nullptr;  // the current one
std::atomic<uint64_t> next_id{1};  // only has to differ

constexpr size_t default_limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64};  // stack, printf, heap; the rest is kept

}  // namespace

Context::Context(Device& device, bool primary, unsigned flags)
    : device(device), primary(primary), id(next_id.fetch_add(1, std::memory_order_relaxed)) {
  // The handle's slot shares in nothing: contexts are never freed.
  handle = static_cast<CUcontext>(handles<Context>().add(std::shared_ptr<Context>(this, [](Context*) {})));
  this->flags.store(flags, std::memory_order_relaxed);  // nobody else has the context yet
  error_.store(CUDA_ERROR_CONTEXT_IS_DESTROYED, std::memory_order_relaxed);
  if (!primary) revive();
}

Context* Context::current() { return top ? top->context : nullptr; }

CUresult Context::push(Context* context) {
  top = new Link{context, top};
  return CUDA_SUCCESS;
}

CUresult Context::pop(Context** context) {
  if (!top) return CUDA_ERROR_INVALID_CONTEXT;
  *context = top->context;
  delete std::exchange(top, top->below);
  return CUDA_SUCCESS;
}

void Context::set(Context* context) {
  Context* old;
  if (context && top) {
    top->context = context;
  } else if (context) {
    push(context);
  } else {
    pop(&old);
  }
}

void Context::revive() {
  for (size_t i = 0; i < 16; i++) {
    limits[i].store(i < std::size(default_limits) ? default_limits[i] : 0, std::memory_order_relaxed);
  }
  cache_config.store(0, std::memory_order_relaxed);  // all of these are seen through error_'s release
  shared_config.store(0, std::memory_order_relaxed);
  peers.store(0, std::memory_order_relaxed);
  legacy = std::make_shared<Stream>(*this, 0u, 0);
  add_stream(legacy);
  error_.store(CUDA_SUCCESS, std::memory_order_release);  // after the stream, for error()
}

void Context::destroy() {
  error_.store(CUDA_ERROR_CONTEXT_IS_DESTROYED, std::memory_order_release);
  end_captures(*this);
  end_streams(*this);  // what is queued is skipped now
  for (auto& hook : reset_hooks()) hook(*this);
  std::lock_guard<std::mutex> hold(lock_);
  per_thread_.clear();
  text_.clear();
}

std::shared_ptr<Stream> Context::per_thread() {
  std::shared_ptr<Stream> made;
  {
    std::lock_guard<std::mutex> hold(lock_);
    std::shared_ptr<Stream>& mine = per_thread_[std::this_thread::get_id()];
    if (mine) return mine;
    made = mine = std::make_shared<Stream>(*this, 0u, 0);
  }
  add_stream(made);
  return made;
}

std::string Context::error_text() {
  std::lock_guard<std::mutex> hold(lock_);
  return text_;
}

void fail_context(Context& context, CUresult cause, const std::string& text) {
  {
    std::lock_guard<std::mutex> hold(context.lock_);
    int fine = CUDA_SUCCESS;
    // The first failure stays, and a destroyed context stays destroyed.
    if (!context.error_.compare_exchange_strong(fine, cause, std::memory_order_acq_rel)) return;
    context.text_ = text;
  }
  if (!text.empty()) log_line(CU_LOG_LEVEL_ERROR, text);
  progress();
}

std::vector<std::function<void(Context&)>>& reset_hooks() {
  static auto* all = new std::vector<std::function<void(Context&)>>();
  return *all;
}

}  // namespace cudacpu
