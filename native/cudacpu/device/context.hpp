// Contexts: the current one of a thread, errors that stay, what belongs to a context. What does not live here: the
// streams themselves (stream.hpp).
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"

namespace cudacpu {

struct Stream;

// Contexts are few and never freed: what still runs when one is destroyed may look at it. A primary one comes back to
// life when it is retained again.
class Context {
 public:
  Device& device;
  const bool primary;
  const uint64_t id;  // of this life: cuCtxGetId
  CUcontext handle;
  std::atomic<unsigned> flags{0};
  std::atomic<int> cache_config{0}, shared_config{0};
  std::atomic<size_t> limits[16];                // by CUlimit
  std::atomic<uint64_t> peers{0};                // bit n: access to device n is enabled
  std::atomic<int> references{0};                // of a primary one
  std::shared_ptr<Stream> legacy;                // the default stream
  std::vector<std::shared_ptr<Stream>> streams;  // that live or have work; guarded by the scheduler's lock (stream.cpp)

  Context(Device& device, bool primary, unsigned flags);

  // The calling thread's; null where it has none.
  static Context* current();
  static CUresult push(Context* context);
  static CUresult pop(Context** context);
  static void set(Context* context);  // replaces the top; null empties it

  // CUDA_SUCCESS while the context can be used: else its sticky error, or that it is destroyed.
  CUresult error() const { return static_cast<CUresult>(error_.load(std::memory_order_acquire)); }  // after text_
  // Makes a primary context usable again, as new.
  void revive();
  // Frees what belongs to it. Work that has not begun is skipped; what runs is waited for.
  void destroy();
  std::shared_ptr<Stream> per_thread();

  // The error's text, for who reports it.
  std::string error_text();

 private:
  friend void fail_context(Context& context, CUresult cause, const std::string& text);
  std::atomic<int> error_{0};
  std::mutex lock_;  // guards text_ and per_thread_; no lock but the scheduler's is taken under it
  std::string text_;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_;
};

// The context's error from now on; the first one stays. `text` says what happened where, and goes to the log.
void fail_context(Context& context, CUresult cause, const std::string& text);

// What is to be done when a context ends or is reset, by the parts that keep objects of contexts. Registered while the
// library is loaded.
std::vector<std::function<void(Context&)>>& reset_hooks();

}  // namespace cudacpu
