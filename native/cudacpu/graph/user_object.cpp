// User objects, and the thread that destroys what they own: see user_object.hpp.
#include "graph/user_object.hpp"

#include <atomic>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "api/entry.hpp"
#include "api/handle.hpp"
#include "stream/threads.hpp"

namespace cudacpu {

struct UserObject {
  CUhostFn destroy;
  void* data;
  std::atomic<uint64_t> references;
  CUuserObject handle;
};

namespace {

// Destructors run in a thread of their own, as the API says, so that they may take locks that callers of the API hold.
// Never destroyed: it may run until the process is gone.
class Destroyer {
 public:
  void add(CUhostFn destroy, void* data) {
    std::lock_guard<std::mutex> hold(lock_);
    waiting_.emplace_back(destroy, data);
    if (!started_) started_ = start_thread("cuda-objects", [this] { run(); });
    more_.notify_one();
  }

 private:
  [[noreturn]] void run() {
    for (;;) {
      std::unique_lock<std::mutex> hold(lock_);
      more_.wait(hold, [this] { return !waiting_.empty(); });
      auto [destroy, data] = waiting_.front();
      waiting_.pop_front();
      hold.unlock();
      destroy(data);
    }
  }

  std::mutex lock_;  // guards all; nothing is called under it
  std::condition_variable more_;
  std::deque<std::pair<CUhostFn, void*>> waiting_;
  bool started_ = false;
};

Destroyer& destroyer() {
  static auto* one = new Destroyer();
  return *one;
}

void release(UserObject& object, uint64_t count) {
  // acq_rel: whoever destroys sees what those who let go did before.
  if (object.references.fetch_sub(count, std::memory_order_acq_rel) != count) return;
  handles<UserObject>().remove(object.handle);
  destroyer().add(object.destroy, object.data);
}

bool countable(unsigned count) { return count != 0 && count <= INT_MAX; }

}  // namespace

UserReferences::UserReferences(const UserReferences& other) { include(other); }

UserReferences::~UserReferences() {
  for (auto& [object, count] : counts_) release(*object, count);
}

void UserReferences::add(const std::shared_ptr<UserObject>& object, unsigned count, bool move) {
  counts_[object] += count;
  // relaxed: a count of what the caller holds already
  if (!move) object->references.fetch_add(count, std::memory_order_relaxed);
}

bool UserReferences::remove(const std::shared_ptr<UserObject>& object, unsigned count) {
  auto found = counts_.find(object);
  if (found == counts_.end() || found->second < count) return false;
  if (!(found->second -= count)) counts_.erase(found);
  release(*object, count);
  return true;
}

void UserReferences::include(const UserReferences& other) {
  for (auto& [object, count] : other.counts_) {
    counts_[object] += count;
    object->references.fetch_add(count, std::memory_order_relaxed);  // a count of what `other` holds
  }
}

HCQ_API cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
  return with_init([&]() -> CUresult {
    if (!out || !destroy || !countable(references) || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<UserObject>();
    object->destroy = destroy;
    object->data = data;
    object->references.store(references, std::memory_order_relaxed);  // nobody else knows it yet
    *out = object->handle = static_cast<CUuserObject>(handles<UserObject>().add(object));
    return CUDA_SUCCESS;
  });
}

HCQ_API cuUserObjectRetain(CUuserObject handle, unsigned count) {
  return with_init([&]() -> CUresult {
    auto object = handles<UserObject>().share(handle);
    if (!object || !countable(count)) return CUDA_ERROR_INVALID_VALUE;
    object->references.fetch_add(count, std::memory_order_relaxed);  // a count of what the caller holds already
    return CUDA_SUCCESS;
  });
}

HCQ_API cuUserObjectRelease(CUuserObject handle, unsigned count) {
  return with_init([&]() -> CUresult {
    auto object = handles<UserObject>().share(handle);
    if (!object || !countable(count)) return CUDA_ERROR_INVALID_VALUE;
    release(*object, count);
    return CUDA_SUCCESS;
  });
}

}  // namespace cudacpu
