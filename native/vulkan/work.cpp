// Giving work to the device's queue, seeing how far it is, and the thread that tells of what nobody waits for.
#include "vulkan/work.hpp"

#include <algorithm>

#include "core/flights.hpp"
#include "platform/platform.hpp"
#include "vulkan/recorder.hpp"

namespace hcq::vk {

namespace {
constexpr uint64_t kNap = 100'000;       // ns that work may be over before it is told, where nobody waits for it
constexpr uint64_t kLongNap = 250'000;   // the same where others see to what is over
constexpr int kMostNaps = 20;            // without anything to tell, until that thread sleeps for good
constexpr uint64_t kSleep = 20'000'000;  // ns: how often who sleeps in Vulkan looks whether it should end
constexpr uint64_t kEnough = 32;         // pieces of work that keep the device busy until somebody looks
constexpr size_t kHeld = 16;             // held back at most
constexpr size_t kMost = kHeld + kFlights;
constexpr uint64_t kPatience = 5'000'000'000;  // ns that what is under way has, where the device is closed
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
  std::lock_guard<std::mutex> guard(give_lock_);
  if (stopping() || refused_.load(std::memory_order_relaxed)) {
    *error = refusal_.empty() ? "the device takes no more work" : refusal_;
    return false;
  }
  *first = given_.load(std::memory_order_relaxed) + 1;
  held_.insert(held_.end(), buffers, buffers + count);
  given_.store(*first + count - 1, std::memory_order_relaxed);
  submit(false);
  return true;
}

// Under give_lock_. What is held back goes to the device, unless that has enough to do and more may come.
void Work::submit(bool all) {
  size_t count = held_.size();
  uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  if (!count || refused_.load(std::memory_order_relaxed)) return;
  auto enough = [&] { return submitted >= reached_.load(std::memory_order_relaxed) + kEnough; };
  if (!all && count < kHeld && enough() && read() == kSuccess && enough()) return;
  SubmitInfo infos[kMost];
  TimelineSemaphoreSubmitInfo values[kMost];
  uint64_t numbers[kMost];
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = submitted + 1 + i;
    values[i] = make<TimelineSemaphoreSubmitInfo>(kTimelineSemaphoreSubmitInfo);
    values[i].signal_count = 1;
    values[i].signal_values = &numbers[i];
    infos[i] = make<SubmitInfo>(kSubmitInfo, &values[i]);
    infos[i].buffer_count = 1;
    infos[i].buffers = &held_[i];
    infos[i].signal_count = 1;
    infos[i].signals = &semaphore_;
  }
  ++calls_;
  int32_t result = context->failing.exchange(0, std::memory_order_relaxed);
  if (result == kSuccess) result = context->call.QueueSubmit(context->queue, static_cast<uint32_t>(count), infos, 0);
  held_.clear();
  if (result == kSuccess) {
    submitted_.store(submitted + count, std::memory_order_relaxed);
    return;
  }
  refusal_ = std::string("vkQueueSubmit: ") + result_name(result) + " (" + std::to_string(result) + ")";
  refused_.store(true, std::memory_order_release);
}

std::pair<uint64_t, uint64_t> Work::counts() {
  std::lock_guard<std::mutex> guard(give_lock_);
  return {given_.load(std::memory_order_relaxed), calls_};
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
  if (result != kSuccess) {
    *error = std::string("Vulkan says ") + result_name(result) + " (" + std::to_string(result) + ")";
    return Over::failed;
  }
  if (given_.load(std::memory_order_relaxed) > submitted_.load(std::memory_order_relaxed)) {
    std::lock_guard<std::mutex> guard(give_lock_);
    submit(false);
  }
  if (!refused_.load(std::memory_order_acquire) || number <= submitted_.load(std::memory_order_relaxed))
    return Over::no;
  *error = refusal_;
  return Over::failed;
}

void Work::sleep(uint64_t number, uint64_t ns) {
  uint64_t until = now_ns() + ns;
  for (uint64_t now = now_ns(); now < until && !stopping(); now = now_ns()) {
    std::shared_lock<std::shared_mutex> present(context->presence);
    if (context->closed() || known(number)) return;
    if (number > submitted_.load(std::memory_order_relaxed)) {
      std::lock_guard<std::mutex> guard(give_lock_);
      submit(true);
      if (number > submitted_.load(std::memory_order_relaxed)) return;  // refused
    }
    auto info = make<SemaphoreWaitInfo>(kSemaphoreWaitInfo);
    info.count = 1;
    info.semaphores = &semaphore_;
    info.values = &number;
    if (context->call.WaitSemaphores(context->device, &info, std::min(until - now, kSleep)) != kTimeout) return;
  }
}

void Work::close(bool patient) {
  if (context->closed()) return;
  uint64_t given = given_.load(std::memory_order_relaxed);
  if (patient) sleep(given, kPatience);
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
    if (!teller_.joinable() && !start_thread(&teller_, [this] { run(); })) return false;
    told_.push_back({number, q});
    wake = asleep_;
  }
  if (wake) changed_.notify_one();
  return true;
}

void Work::run() {
  set_thread_name("hcq vulkan");
  uint64_t nap = kNap;
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
      changed_.wait_for(guard, std::chrono::nanoseconds(nap), [this] { return stopping(); });
      // Who waits, or launches, has seen something to be over: woken less often, this thread leaves them the core.
      nap = reached_.load(std::memory_order_relaxed) > seen ? kLongNap : kNap;
      if (told_.empty()) continue;
    }
    if (stopping()) return;
    look();
    // Whoever waits sees to what it waits for, mostly. Work that takes longer than a nap is waited for here as well.
    if (reached_.load(std::memory_order_relaxed) == seen && submitted_.load(std::memory_order_relaxed) > seen)
      sleep(seen + 1, kSleep);
  }
}

// Tells of what is over, and has the queues look that have more.
void Work::look() {
  bool failed;
  {
    std::shared_lock<std::shared_mutex> present(context->presence);
    if (context->closed()) return;
    std::string unsaid;
    failed = over(given_.load(std::memory_order_relaxed), &unsaid) == Over::failed;  // gives what is held back as well
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
  {
    std::shared_lock<std::shared_mutex> present(context->presence);
    std::lock_guard<std::mutex> guard(give_lock_);  // so that nothing more comes
    // Before what still runs counts as failed, and what it uses is given back.
    if (!context->closed() && read() == kSuccess && !known(submitted_.load(std::memory_order_relaxed)))
      context->busy.store(true);
    stopping_.store(true, std::memory_order_release);
  }
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
