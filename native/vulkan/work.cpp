// Giving work to the device's queue, seeing how far it is, and the thread that tells of what nobody waits for.
#include "vulkan/work.hpp"

#include <algorithm>
#include <csignal>

#include "platform/platform.hpp"
#include "vulkan/recorder.hpp"

namespace hcq::vk {

namespace {
constexpr uint64_t kNap = 100'000;       // ns that work may be over before it is told, where nobody waits for it
constexpr int kMostNaps = 20;            // without anything to tell, until that thread sleeps for good
constexpr uint64_t kSleep = 20'000'000;  // ns: how often who sleeps in Vulkan looks whether it should end
constexpr int kMostSleeps = 250;         // 5 s
}  // namespace

Work::Work(std::shared_ptr<Context> opened) : context(std::move(opened)) {
  auto kind = make<SemaphoreTypeCreateInfo>(kSemaphoreTypeCreateInfo);
  kind.kind = kTimelineType;
  auto info = make<SemaphoreCreateInfo>(kSemaphoreCreateInfo, &kind);
  check("vkCreateSemaphore", context->call.CreateSemaphore(context->device, &info, nullptr, &semaphore_));
  made(Kind::semaphore);
}

Work::~Work() {
  if (context->generation == g_generation) close(false);
}

bool Work::give(const CommandBuffer* buffers, size_t count, uint64_t* first, std::string* error) {
  if (stopping()) {
    *error = "the device takes no more work";
    return false;
  }
  constexpr size_t kMost = 80;  // more than are in flight on a queue
  SubmitInfo infos[kMost];
  TimelineSemaphoreSubmitInfo values[kMost];
  uint64_t numbers[kMost];
  std::lock_guard<std::mutex> guard(give_lock_);
  uint64_t given = given_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = given + 1 + i;
    values[i] = make<TimelineSemaphoreSubmitInfo>(kTimelineSemaphoreSubmitInfo);
    values[i].signal_count = 1;
    values[i].signal_values = &numbers[i];
    infos[i] = make<SubmitInfo>(kSubmitInfo, &values[i]);
    infos[i].buffer_count = 1;
    infos[i].buffers = &buffers[i];
    infos[i].signal_count = 1;
    infos[i].signals = &semaphore_;
  }
  int32_t result = context->failing.exchange(0, std::memory_order_relaxed);
  if (result == kSuccess) result = context->call.QueueSubmit(context->queue, static_cast<uint32_t>(count), infos, 0);
  if (result != kSuccess) {
    *error = std::string("vkQueueSubmit: ") + result_name(result) + " (" + std::to_string(result) + ")";
    return false;
  }
  *first = given + 1;
  given_.store(given + count, std::memory_order_relaxed);
  return true;
}

// How far the device is, into `reached_`.
int32_t Work::read() {
  uint64_t now = 0, seen = reached_.load(std::memory_order_relaxed);
  int32_t result = context->call.GetSemaphoreCounterValue(context->device, semaphore_, &now);
  if (result != kSuccess) return result;
  while (now > seen && !reached_.compare_exchange_weak(seen, now, std::memory_order_release)) {
  }
  return kSuccess;
}

Over Work::over(uint64_t number, std::string* error) {
  if (known(number)) return Over::yes;
  int32_t result = read();
  if (known(number)) return Over::yes;
  if (result == kSuccess) return Over::no;
  *error = std::string("Vulkan says ") + result_name(result) + " (" + std::to_string(result) + ")";
  return Over::failed;
}

void Work::sleep(uint64_t number, uint64_t ns) {
  uint64_t until = now_ns() + ns;
  for (uint64_t now = now_ns(); now < until && !stopping(); now = now_ns()) {
    std::shared_lock<std::shared_mutex> present(context->presence);
    if (context->closed() || known(number)) return;
    auto info = make<SemaphoreWaitInfo>(kSemaphoreWaitInfo);
    info.count = 1;
    info.semaphores = &semaphore_;
    info.values = &number;
    if (context->call.WaitSemaphores(context->device, &info, std::min(until - now, kSleep)) != kTimeout) return;
  }
}

bool Work::idle(bool patient) {
  uint64_t given = given_.load(std::memory_order_relaxed);
  for (int n = 0;; ++n) {
    {
      std::string unsaid;
      std::shared_lock<std::shared_mutex> present(context->presence);
      if (context->closed() || over(given, &unsaid) != Over::no) return true;  // what failed runs nothing any more
    }
    if (!patient || n == kMostSleeps) return false;
    sleep(given, kSleep);
  }
}

void Work::close(bool patient) {
  if (context->closed()) return;
  if (!idle(patient)) context->busy.store(true);
  stop();
  std::unique_lock<std::shared_mutex> alone(context->presence);
  if (context->closed()) return;
  if (!context->busy.load()) {
    std::lock_guard<std::mutex> guard(recorders_lock);
    for (Recorder* each : recorders) each->drop();
    recorders.clear();
    context->call.DestroySemaphore(context->device, semaphore_, nullptr);
    gone(Kind::semaphore);
  }
  context->close();
}

// --- who is told ---------------------------------------------------------------------------------------------------

bool Work::tell(uint64_t number, Queue* q) {
  bool wake;
  {
    std::lock_guard<std::mutex> guard(tell_lock_);
    if (stopping()) return false;
    told_.push_back({number, q});
    if (!teller_.joinable()) {
      sigset_t all, before;  // signals are for Python's threads
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      teller_ = std::thread(&Work::run, this);
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    wake = asleep_;
  }
  if (wake) changed_.notify_one();
  return true;
}

void Work::run() {
  set_thread_name("hcq vulkan");
  for (int idle = 0; !stopping();) {
    uint64_t seen = reached_.load(std::memory_order_relaxed);
    {
      std::unique_lock<std::mutex> guard(tell_lock_);
      if (told_.empty() && ++idle > kMostNaps) {
        asleep_ = true;
        changed_.wait(guard, [this] { return stopping() || !told_.empty(); });
        asleep_ = false;
      }
      if (!told_.empty()) idle = 0;
      changed_.wait_for(guard, std::chrono::nanoseconds(kNap), [this] { return stopping(); });
      if (told_.empty()) continue;
    }
    if (stopping()) return;
    look();
    // Whoever waits sees to what it waits for, mostly. Work that takes longer than a nap is waited for here as well.
    if (reached_.load(std::memory_order_relaxed) == seen && given_.load(std::memory_order_relaxed) > seen)
      sleep(seen + 1, kSleep);
  }
}

// Tells of what is over, and has the queues look that have more.
void Work::look() {
  bool failed;
  {
    std::shared_lock<std::shared_mutex> present(context->presence);
    if (context->closed()) return;
    failed = read() != kSuccess;
  }
  uint64_t reached = reached_.load(std::memory_order_acquire);
  std::vector<Queue*> over, more;
  {
    std::lock_guard<std::mutex> guard(tell_lock_);
    for (size_t i = 0; i < told_.size();) {
      if (!failed && told_[i].number > reached) {
        more.push_back(told_[i].queue);  // its reference goes by this thread alone
        ++i;
        continue;
      }
      over.push_back(told_[i].queue);
      told_[i] = told_.back();
      told_.pop_back();
    }
  }
  for (Queue* q : more) flights_look(q);
  for (Queue* q : over) commands_over(q);
}

void Work::stop() {
  if (!idle(false)) context->busy.store(true);  // before what it uses is given back
  stopping_.store(true, std::memory_order_relaxed);
  std::vector<Told> left;
  {
    std::lock_guard<std::mutex> guard(tell_lock_);
    changed_.notify_one();
  }
  if (teller_.joinable()) teller_.join();
  {
    std::lock_guard<std::mutex> guard(tell_lock_);
    left.swap(told_);
  }
  for (Told& each : left) commands_over(each.queue);
}

}  // namespace hcq::vk
