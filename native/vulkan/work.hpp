// What a device has been given to do, in order, how far it is, and who is told of it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/interface.hpp"
#include "vulkan/context.hpp"

namespace hcq::vk {

// Pieces of work have numbers, one after the other from 1: a timeline semaphore says which is over, and all before it
// are. Any thread; what calls Vulkan wants the device open (Presence), but for `sleep`, which sees to that itself.
class Work {
 public:
  explicit Work(std::shared_ptr<Context> context);  // throws Failure
  ~Work();
  Work(const Work&) = delete;

  // Gives command buffers to the device, each a piece of work, numbered from *first on. False: none was taken. While
  // the device has much to do they may be held back for a while, so that several go to it in one call.
  bool give(const CommandBuffer* buffers, size_t count, uint64_t* first, std::string* error);
  // Pieces of work that were given, and calls of Vulkan that it took.
  std::pair<uint64_t, uint64_t> counts();
  Over over(uint64_t number, std::string* error);
  // Whether it was seen to be over before: without a call of Vulkan.
  bool known(uint64_t number) const { return reached_.load(std::memory_order_acquire) >= number; }
  // Until a piece of work is over, or for `ns`.
  void sleep(uint64_t number, uint64_t ns);
  // Has commands_over(q) called, by a thread that q has a reference for, when a piece of work is over; and sooner, each
  // time that something is.
  // False: nobody is told any more, or there is no thread for it.
  bool tell(uint64_t number, Queue* q);
  // Ends that thread, and waits for it. From then on nothing is given, and what isn't over by then is left to itself.
  void stop();
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  // Waits for what is under way, for some seconds where `patient`, and closes the device. One on which something still
  // runs then is left to the process's end.
  void close(bool patient);

  const std::shared_ptr<Context> context;

  // Who records for the device; they go with it, if not before. The lock is a leaf.
  std::mutex recorders_lock;
  std::set<class Recorder*> recorders;

 private:
  struct Told {
    uint64_t number;
    Queue* queue;
  };
  int32_t read();
  void submit(bool all);
  void run();
  void look();

  Handle semaphore_ = 0;
  std::atomic<uint64_t> reached_{0};               // as last seen. Release: what is over is seen by who sees that it is
  std::atomic<bool> stopping_{false};              // release: `busy` was set before
  std::atomic<uint64_t> given_{0}, submitted_{0};  // held back between the two. Written under give_lock_
  std::atomic<bool> refused_{false};  // release: `refusal_` was written before. What is held back then never runs

  std::mutex give_lock_;  // all below, and the device's queue. A leaf
  std::vector<CommandBuffer> held_;
  std::string refusal_;
  uint64_t calls_ = 0;

  std::mutex tell_lock_;  // all below. A leaf: nobody is called with it
  std::condition_variable changed_;
  std::vector<Told> told_;
  bool asleep_ = false;  // for good, until somebody is to be told
  std::thread teller_;
};

}  // namespace hcq::vk
