// The device's queue: lanes of submits, what of them waits on the host, and what signals are to be set when commands
// are over (docs/design/vulkan.md).
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <unordered_map>

#include "vulkan/recorder.hpp"

namespace hcq::vk {

// Called without any lock, by threads without the GIL.
struct Listener {
  // The device failed.
  std::function<void(const std::string& why, const std::string& command)> lost;
  // A wait of a submit fails: 1 to go on, 0 to wait on, -1 where the rest of the submit, from `at` on, was dropped.
  std::function<int(const Commands& commands, size_t at)> failed;
};

// Work that the device has been given: what to do when its semaphore reaches `number`.
struct Batch {
  uint64_t number = 0;
  std::vector<std::shared_ptr<Run>> runs;
  std::vector<std::pair<SignalMemory*, Query>> stamps;
  std::vector<std::pair<SignalMemory*, uint64_t>> sets;
  std::string last;  // the command it ends in, for messages
};

struct Job {
  std::shared_ptr<Commands> commands;
  size_t at = 0;
};

enum class Progress : uint8_t { done, blocked, failed };

struct Lane {
  std::mutex lock;  // todo; held by a submit that goes straight to the device
  std::condition_variable changed;
  std::deque<Job> todo;  // the first is the feeder's
  std::thread feeder;
  uint64_t last = 0;  // the batch that is over once all that it was given is; under Queue::lock_
};

class Queue {
 public:
  Queue(std::shared_ptr<Context> context, Listener listener);
  ~Queue() { stop(); }
  Queue(const Queue&) = delete;

  // Gives the commands to the device, or to the lane's thread where they wait for something. False: there is no room.
  // Throws Failure. Without the GIL.
  bool submit(unsigned lane, std::shared_ptr<Commands> commands);
  // For a thread that waits for a signal: where work under way is to set it, waits for that, for a while, and sets what
  // is due itself, instead of being woken by the thread that does. Without the GIL.
  void help(SignalMemory* signal, uint64_t value);
  // The device is lost, or goes: threads end.
  void give_up();
  void end_threads();
  void stop();  // and gives back what it has of the device
  size_t in_flight();

 private:
  void start(std::thread* thread, void (Queue::*work)(unsigned), unsigned lane);
  Progress advance(Lane& lane, Job& job);
  void flush(std::vector<Batch>* batches);
  bool promised(SignalMemory* signal, uint64_t value, Lane& lane);
  void feed(unsigned lane);
  bool wait_over(Lane& lane, Job& job);
  bool drained(Lane& lane);
  void settle(unsigned);
  void doze(std::unique_lock<std::mutex>& guard);
  int32_t wait(uint64_t number, uint64_t* reached);
  void settle_until(uint64_t reached);
  void settle_batch(Batch& batch);
  void fail(const Failure& failure, const std::string& command);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Recorder> recorder_;
  Listener listener_;
  Handle semaphore_ = 0;
  std::atomic<bool> stopping_{false};
  Lane lanes_[2];

  std::mutex lock_;  // all below, and the recorder. Taken inside a lane's lock; nothing is called back with it held
  std::condition_variable changed_;
  std::deque<Batch> pending_;
  uint64_t given_ = 0, over_ = 0;
  unsigned helpers_ = 0;  // threads that wait for the semaphore beside the settling one
  // Whether helpers have settled what came last: then the settling thread leaves them the next work too, and only looks
  // now and then whether they do. Woken for each launch it would have a core that the device's own threads need.
  bool helped_ = false;
  bool napping_ = false;          // it will look by itself
  std::condition_variable work_;  // for the settling thread
  // The newest value that pending work sets a signal to, and the batch that does.
  std::unordered_map<SignalMemory*, std::pair<uint64_t, uint64_t>> promises_;
  std::thread settler_;
};

}  // namespace hcq::vk
