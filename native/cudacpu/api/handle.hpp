// Handles: what the API's opaque pointers point to. What does not live here: the objects.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace cudacpu {

// The handles of one kind of object. A handle points to a slot that is never given back to the system, so that a stale
// or foreign one is told from a live one by reading it; slots are used again oldest first.
template <class T>
class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> hold(lock_);
    Slot* slot;
    if (free_.size() > 64) {
      slot = free_.front();
      free_.pop_front();
    } else {
      slot = &slots_.emplace_back();
    }
    slot->object = std::move(object);
    slot->magic.store(magic_, std::memory_order_release);  // after the object, for find() in another thread
    return slot;
  }

  // The object, or null for what is no live handle of this kind.
  T* find(const void* handle) const {
    if (reinterpret_cast<uintptr_t>(handle) < 4096 || reinterpret_cast<uintptr_t>(handle) % alignof(Slot))
      return nullptr;
    auto* slot = static_cast<const Slot*>(handle);
    return slot->magic.load(std::memory_order_acquire) == magic_ ? slot->object.get() : nullptr;  // pairs with add()
  }

  std::shared_ptr<T> share(const void* handle) const {
    return find(handle) ? static_cast<const Slot*>(handle)->object : nullptr;
  }

  // Ends the handle and hands out the object; null when it was none. `only`: unless it is another object's. Who keeps a
  // handle for later must give it, since the slot may have been given again.
  std::shared_ptr<T> remove(void* handle, const T* only = nullptr) {
    if (!find(handle)) return nullptr;
    std::lock_guard<std::mutex> hold(lock_);
    auto* slot = static_cast<Slot*>(handle);
    // Of two threads that end one handle, one gets the object.
    if (slot->magic.load(std::memory_order_relaxed) != magic_) return nullptr;  // the lock orders it
    return only && slot->object.get() != only ? nullptr : end(*slot);
  }

  // Ends the handles of all objects that `wanted(object)` is true of, and hands them out.
  template <class F>
  std::vector<std::shared_ptr<T>> remove_if(F&& wanted) {
    std::vector<std::shared_ptr<T>> ended;
    std::lock_guard<std::mutex> hold(lock_);
    for (Slot& slot : slots_) {
      bool live = slot.magic.load(std::memory_order_relaxed) == magic_;  // the lock orders it
      if (live && wanted(*slot.object)) ended.push_back(end(slot));
    }
    return ended;
  }

 private:
  struct alignas(32) Slot {
    std::atomic<const void*> magic{nullptr};
    std::shared_ptr<T> object;
  };

  std::shared_ptr<T> end(Slot& slot) {
    slot.magic.store(nullptr, std::memory_order_relaxed);  // who still finds it has no right to
    free_.push_back(&slot);
    return std::move(slot.object);
  }

  const void* magic_ = this;  // tells kinds apart
  std::mutex lock_;           // guards slots_ and free_; nothing is called under it
  std::deque<Slot> slots_;    // a deque: slots stay where they are
  std::deque<Slot*> free_;
};

// The one registry of a kind. Never destroyed: threads of the library may run until the process is gone.
template <class T>
Handles<T>& handles() {
  static auto* all = new Handles<T>();
  return *all;
}

}  // namespace cudacpu
