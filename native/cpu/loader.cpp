// Images: objects placed in memory, once or once a context, and taken out again. Reading them is object.cpp's.
#include "cpu/loader.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/relocate.hpp"

namespace hcq {

namespace {

#if defined(__aarch64__)
constexpr auto kApply = apply_aarch64;
#else
constexpr auto kApply = apply_x86_64;
#endif
constexpr size_t kSpanCode = size_t{64} << 20;  // of an ordinary span; a larger object gets a span of its own
constexpr size_t kSpanData = size_t{192} << 20;
// Memory that is there behind local arrays. Vector code loads past their ends with those lanes masked; where no page is
// mapped yet, processors take some hundred cycles to find that nothing was wanted (a layer norm: 78 ms instead of 3).
constexpr size_t kPastLocal = 4096;

// Spans of this process. Another generation's are left as they are (fork), and new ones made.
struct Spans {
  uint32_t generation = g_generation;
  std::mutex
      lock;  // covers every span; held while memory is taken or given, never while running code or taking the GIL
  std::vector<Span*> all;
};

Spans& spans() {
  static std::atomic<Spans*> current{nullptr};
  Spans* seen = current.load(std::memory_order_acquire);  // acquire: sees the object that the pointer was stored for
  while (!seen || seen->generation != g_generation) {
    auto* fresh = new Spans;
    // acq_rel: publishes the new object, or sees the one of whoever was faster
    if (current.compare_exchange_strong(seen, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
  }
  return *seen;
}

}  // namespace

Image* Image::load(const uint8_t* object, size_t size, std::string* error) {
  std::unique_ptr<Image> image(new Image);
  if (!image->read(object, size, error)) return nullptr;
  auto& all = spans();
  size_t data = image->shared_size_ + image->local_size_ + kPastLocal;
  {
    std::lock_guard<std::mutex> held(all.lock);
    for (Span* span : all.all) {
      image->span_ = span;
      if (image->place(&image->first_, true, error)) break;
      image->span_ = nullptr;
      if (!error->empty()) return nullptr;
    }
    if (!image->span_) {
      // Room for some instances of a large object with local memory.
      Span* span = Span::create(std::max(kSpanCode, image->code_size_ * 2), std::max(kSpanData, data * 2), error);
      if (!span) return nullptr;
      all.all.push_back(span);
      image->span_ = span;
      if (!image->place(&image->first_, true, error)) {
        if (error->empty()) *error = "cannot load the object: out of memory for code";
        image->span_ = nullptr;
        return nullptr;
      }
    }
  }
  if (!image->has_local()) {
    image->code_bytes_ = {};
    image->fixups_ = {};
  }
  image->shared_bytes_ = {};
  return image.release();
}

// Takes memory in the span and fills it. False with an empty message when the span is full. The spans' lock is held.
bool Image::place(Instance* instance, bool with_shared, std::string* error) {
  error->clear();
  if (!span_->take_code(code_size_, code_align_, &instance->code)) return false;
  if (local_size_ && !span_->take_data(local_size_ + kPastLocal, local_align_, &instance->local)) {
    span_->give_code(instance->code);
    *instance = {};
    return false;
  }
  if (local_size_) std::memset(instance->local.write, 0, local_size_ + kPastLocal);
  if (with_shared && shared_size_ && !span_->take_data(shared_size_, shared_align_, &shared_)) {
    drop(*instance);
    *instance = {};
    return false;
  }
  std::memcpy(instance->code.write, code_bytes_.data(), code_size_);
  if (with_shared && shared_size_) {
    size_t stored = shared_bytes_.size();
    if (stored) std::memcpy(shared_.write, shared_bytes_.data(), stored);
    if (!shared_.zero) std::memset(shared_.write + stored, 0, shared_size_ - stored);
  }
  auto address = [&](Region region, uint64_t value) -> uint64_t {
    if (region == Region::absolute) return value;
    const Piece& piece = region == Region::code ? instance->code : region == Region::local ? instance->local : shared_;
    return reinterpret_cast<uint64_t>(piece.address) + value;
  };
  for (const auto& f : fixups_) {
    if (f.region == Region::shared && !with_shared) continue;
    const Piece& piece = f.region == Region::code ? instance->code : shared_;
    Place where{piece.write + f.offset, reinterpret_cast<uint64_t>(piece.address) + f.offset};
    uint64_t table = address(Region::code, table_);
    Operands operands{address(f.target.region, f.target.value), f.addend, f.slot ? address(Region::code, f.slot) : 0,
                      table};
    if (!kApply(f.type, where, operands)) {
      *error = "cannot load the object: relocation type " + std::to_string(f.type) +
               " doesn't reach its target; compile position-independent code (-fPIC)";
      drop(*instance);
      if (with_shared && shared_size_) span_->give_data(shared_);
      *instance = {};
      shared_ = {};
      return false;
    }
  }
  // The processor may hold stale instructions of what was here before; no work where caches are coherent (x86-64).
  auto* begin = reinterpret_cast<char*>(instance->code.address);
  __builtin___clear_cache(begin, begin + code_size_);
  return true;
}

void Image::drop(const Instance& instance) {
  if (instance.code.address) span_->give_code(instance.code);
  if (instance.local.address) span_->give_data(instance.local);
}

const Instance* Image::make_instance(uint32_t context) {
  auto& slot = chunks_[context / kChunk];
  Chunk* chunk = slot.load(std::memory_order_acquire);  // acquire: sees the chunk's cleared contents
  if (!chunk) {
    auto* fresh = new Chunk;
    // acq_rel: publishes the chunk, or sees the one of whoever was faster
    if (slot.compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel))
      chunk = fresh;
    else
      delete fresh;
  }
  auto instance = std::make_unique<Instance>();
  std::string error;
  {
    std::lock_guard<std::mutex> held(spans().lock);
    if (!place(instance.get(), false, &error)) return nullptr;
  }
  return chunk->instances[context % kChunk] = instance.release();
}

bool Image::function(const std::string& name, size_t* offset) const {
  auto it = functions_.find(name);
  if (it == functions_.end()) return false;
  *offset = it->second;
  return true;
}

Image::~Image() {
  if (generation_ != g_generation || !span_) return;  // inherited through fork: left as it is
  std::lock_guard<std::mutex> held(spans().lock);
  drop(first_);
  if (shared_.address) span_->give_data(shared_);
  for (auto& slot : chunks_) {
    Chunk* chunk = slot.load(std::memory_order_relaxed);  // relaxed: nobody else uses the image any more
    if (!chunk) continue;
    for (Instance* instance : chunk->instances)
      if (instance) {
        drop(*instance);
        delete instance;
      }
    delete chunk;
  }
}

}  // namespace hcq
