// Submitting, the lanes' threads for what waits on the host, and the thread that sees work to be over.
#include "vulkan/queue.hpp"

#include <csignal>
#include <cstring>

#include "platform/platform.hpp"

namespace hcq::vk {

namespace {
constexpr size_t kMostPending = 2048;   // batches on the device: more wait with who submits
constexpr size_t kMostTodo = 1 << 16;   // submits behind a wait
constexpr uint64_t kLook = 20'000'000;  // ns: how often who sleeps looks whether it should end
constexpr int kMostLooks = 250;         // 5 s
constexpr uint64_t kNap = 250'000;  // ns that work may be over before the settling thread sees that nobody else does
constexpr int kMostNaps = 20;       // without work, until it sleeps for good
constexpr uint64_t kLookAgain = 1'000'000;  // the same where nobody would wake it

std::string in_words(const Command& command) {
  switch (command.op) {
    case Op::exec:
      return "exec " + command.pipeline->name;
    case Op::copy:
      return "copy of " + std::to_string(command.bytes) + " bytes";
    case Op::timestamp:
      return "timestamp";
    default:
      return "submit";
  }
}

// Sleeps until the signal is set, or for a while.
void sleep_at(SignalMemory& signal, uint64_t value, uint64_t ns) {
  signal.sleepers.fetch_add(1, std::memory_order_seq_cst);  // before the look: who sets sees us, or we see the value
  uint32_t seen = signal.wake.load(std::memory_order_acquire);
  if (signal_reached(signal, value) == Reached::no) futex_wait(&signal.wake, seen, ns, true);
  signal.sleepers.fetch_sub(1, std::memory_order_relaxed);
}
}  // namespace

Queue::Queue(std::shared_ptr<Context> context, Listener listener)
    : context_(std::move(context)), recorder_(std::make_shared<Recorder>(context_)), listener_(std::move(listener)) {
  auto kind = make<SemaphoreTypeCreateInfo>(kSemaphoreTypeCreateInfo);
  kind.kind = kTimelineType;
  auto info = make<SemaphoreCreateInfo>(kSemaphoreCreateInfo, &kind);
  int32_t result = context_->call.CreateSemaphore(context_->device, &info, nullptr, &semaphore_);
  if (result != kSuccess) recorder_->close();
  check("vkCreateSemaphore", result);
  made(Kind::semaphore);
}

void Queue::start(std::thread* thread, void (Queue::*work)(unsigned), unsigned lane) {
  sigset_t all, before;  // signals are for Python's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  *thread = std::thread(work, this, lane);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Queue::submit(unsigned number, std::shared_ptr<Commands> commands) {
  Lane& lane = lanes_[number];
  Job job{std::move(commands), 0};
  std::lock_guard<std::mutex> guard(lane.lock);
  if (stopping_.load()) throw Failure{"the device takes no more work", kDeviceLost};
  if (lane.todo.size() >= kMostTodo) return false;
  if (lane.todo.empty()) {
    {
      std::lock_guard<std::mutex> own(lock_);
      if (pending_.size() >= kMostPending) return false;
    }
    if (advance(lane, job) == Progress::done) return true;
  }
  lane.todo.push_back(std::move(job));
  if (!lane.feeder.joinable()) start(&lane.feeder, &Queue::feed, number);
  lane.changed.notify_one();
  return true;
}

// Whether the device will set the signal to the value before what it is given next. Under lock_.
bool Queue::promised(SignalMemory* signal, uint64_t value, Lane& lane) {
  auto found = promises_.find(signal);
  if (found == promises_.end() || found->second.first < value) return false;
  lane.last = std::max(lane.last, found->second.second);
  return true;
}

Progress Queue::advance(Lane& lane, Job& job) {
  Commands& commands = *job.commands;
  std::vector<Batch> batches;
  bool open = false;  // the last batch takes more commands: no signal is set after it yet
  std::lock_guard<std::mutex> guard(lock_);
  while (job.at < commands.list.size()) {
    const Command& command = commands.list[job.at];
    if (command.op == Op::wait) {
      Reached reached = signal_reached(*command.signal, command.value);
      if (reached == Reached::yes || (reached == Reached::no && promised(command.signal, command.value, lane))) {
        ++job.at;
        continue;
      }
      flush(&batches);
      return reached == Reached::failed ? Progress::failed : Progress::blocked;
    }
    if (command.op == Op::signal) {
      ++job.at;
      if (lane.last <= over_) {  // nothing before it is under way
        signal_set(*command.signal, command.value);
        continue;
      }
      promises_[command.signal] = {command.value, lane.last};
      if (!batches.empty() && batches.back().number == lane.last) {
        batches.back().sets.emplace_back(command.signal, command.value);
        open = false;
      } else {
        Batch& batch = pending_[lane.last - pending_.front().number];  // numbers follow one another
        batch.sets.emplace_back(command.signal, command.value);
      }
      continue;
    }
    size_t begin = job.at;
    std::vector<std::pair<SignalMemory*, Query>> stamps;
    std::shared_ptr<Run> run;
    if (commands.bound && begin < commands.runs.size()) run = commands.runs[begin];
    if (run && recorder_->is_current(*run, commands, begin)) {
      job.at = run->end;
    } else {
      run = recorder_->record(commands, &job.at, &stamps);
      if (run->again) {
        commands.runs.resize(commands.list.size());
        commands.runs[begin] = run;
      }
    }
    if (!open || batches.empty()) {
      batches.emplace_back();
      batches.back().number = given_ + batches.size();
      open = true;
    }
    Batch& batch = batches.back();
    batch.stamps.insert(batch.stamps.end(), stamps.begin(), stamps.end());
    batch.runs.push_back(std::move(run));
    batch.last = in_words(commands.list[job.at - 1]);
    for (size_t i = job.at; i-- > begin;)
      if (commands.list[i].op == Op::exec || commands.list[i].op == Op::copy) {
        batch.last = in_words(commands.list[i]);
        break;
      }
    lane.last = batch.number;
  }
  flush(&batches);
  return Progress::done;
}

// Under lock_.
void Queue::flush(std::vector<Batch>* batches) {
  if (batches->empty()) return;
  size_t count = batches->size();
  std::vector<SubmitInfo> infos(count);
  std::vector<TimelineSemaphoreSubmitInfo> values(count);
  std::vector<std::vector<CommandBuffer>> buffers(count);
  for (size_t i = 0; i < count; ++i) {
    Batch& batch = (*batches)[i];
    for (auto& run : batch.runs) buffers[i].push_back(run->buffer);
    values[i] = make<TimelineSemaphoreSubmitInfo>(kTimelineSemaphoreSubmitInfo);
    values[i].signal_count = 1;
    values[i].signal_values = &batch.number;
    infos[i] = make<SubmitInfo>(kSubmitInfo, &values[i]);
    infos[i].buffer_count = static_cast<uint32_t>(buffers[i].size());
    infos[i].buffers = buffers[i].data();
    infos[i].signal_count = 1;
    infos[i].signals = &semaphore_;
  }
  int32_t result = context_->failing.exchange(0);
  if (result == kSuccess)
    result = context_->call.QueueSubmit(context_->queue, static_cast<uint32_t>(count), infos.data(), 0);
  if (result != kSuccess) {
    std::string command = batches->front().last;
    throw Failure{"vkQueueSubmit of " + command + ": " + result_name(result) + " (" + std::to_string(result) + ")",
                  result};
  }
  given_ += count;
  for (Batch& each : *batches) pending_.push_back(std::move(each));
  batches->clear();
  if (!settler_.joinable()) start(&settler_, &Queue::settle, 0);
  if (!napping_) work_.notify_one();
}

// --- what waits on the host ----------------------------------------------------------------------------------------

void Queue::feed(unsigned number) {
  set_thread_name("hcq vulkan");
  Lane& lane = lanes_[number];
  std::unique_lock<std::mutex> guard(lane.lock);
  while (true) {
    while (lane.todo.empty() && !stopping_.load()) lane.changed.wait(guard);
    if (stopping_.load()) return;
    Job& job = lane.todo.front();  // stays where it is while others push behind it
    guard.unlock();
    try {
      while (!stopping_.load()) {
        Progress progress = advance(lane, job);
        if (progress == Progress::done) break;
        if (progress == Progress::blocked) {
          const Command& command = job.commands->list[job.at];
          sleep_at(*command.signal, command.value, kLook);
        } else if (wait_over(lane, job)) {
          break;
        }
      }
    } catch (const Failure& failure) {
      return fail(failure, job.at < job.commands->list.size() ? in_words(job.commands->list[job.at]) : "submit");
    }
    guard.lock();
    if (stopping_.load()) return;
    lane.todo.pop_front();
  }
}

// A wait that fails, once all before it is over. True: the submit was dropped.
bool Queue::wait_over(Lane& lane, Job& job) {
  if (!drained(lane)) return true;
  int answer = listener_.failed(*job.commands, job.at);
  if (answer > 0) ++job.at;
  if (answer == 0) {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait_for(guard, std::chrono::nanoseconds(kLookAgain));
  }
  return answer < 0;
}

bool Queue::drained(Lane& lane) {
  std::unique_lock<std::mutex> guard(lock_);
  while (lane.last > over_ && !stopping_.load()) changed_.wait_for(guard, std::chrono::nanoseconds(kLook));
  return !stopping_.load();
}

// --- what is over --------------------------------------------------------------------------------------------------

void Queue::settle(unsigned) {
  set_thread_name("hcq vulkan");
  std::unique_lock<std::mutex> guard(lock_);
  while (true) {
    if (helped_) doze(guard);
    while (pending_.empty() && !stopping_.load()) work_.wait(guard);
    if (stopping_.load()) return;
    uint64_t number = pending_.front().number;
    std::string command = pending_.front().last;
    guard.unlock();
    uint64_t reached = 0;
    int32_t result = wait(number, &reached);
    if (result == kTimeout) {
      guard.lock();
      continue;
    }
    try {
      check("vkWaitSemaphores", result);
      guard.lock();
      settle_until(reached);
    } catch (const Failure& failure) {
      if (guard.owns_lock()) guard.unlock();
      return fail(failure, command);
    }
  }
}

// While helpers see to what is over: looks now and then whether they do.
void Queue::doze(std::unique_lock<std::mutex>& guard) {
  for (int idle = 0; helped_ && !stopping_.load();) {
    if (pending_.empty() && idle >= kMostNaps) {
      while (pending_.empty() && !stopping_.load()) work_.wait(guard);
      idle = 0;  // whoever gave the work gets the time of a nap
    }
    uint64_t given = given_, first = pending_.empty() ? 0 : pending_.front().number;
    napping_ = true;
    work_.wait_for(guard, std::chrono::nanoseconds(kNap));  // the lock is given up in each round: helpers need it
    napping_ = false;
    if (first && !pending_.empty() && pending_.front().number == first && !helpers_) helped_ = false;
    idle = given_ == given ? idle + 1 : 0;
  }
}

void Queue::help(SignalMemory* signal, uint64_t value) {
  uint64_t number = 0, reached = 0;
  {
    std::lock_guard<std::mutex> guard(lock_);
    auto found = promises_.find(signal);
    if (found == promises_.end() || found->second.first < value || stopping_.load()) return;
    number = found->second.second;
    ++helpers_;
  }
  bool over = wait(number, &reached) == kSuccess;  // else the settling thread tells what is wrong
  std::unique_lock<std::mutex> guard(lock_);
  --helpers_;
  try {
    helped_ = over;  // not where it takes long: naps beside a long launch cost more than being woken at its end
    if (!over) work_.notify_one();
    settle_until(over && !stopping_.load() ? reached : 0);
  } catch (const Failure& failure) {
    guard.unlock();
    fail(failure, "timestamp");
  }
}

// For a while; kTimeout where the device has not come so far.
int32_t Queue::wait(uint64_t number, uint64_t* reached) {
  auto info = make<SemaphoreWaitInfo>(kSemaphoreWaitInfo);
  info.count = 1;
  info.semaphores = &semaphore_;
  info.values = &number;
  int32_t result = context_->call.WaitSemaphores(context_->device, &info, kLook);
  if (result != kSuccess) return result;
  return context_->call.GetSemaphoreCounterValue(context_->device, semaphore_, reached);
}

// Under lock_.
void Queue::settle_until(uint64_t reached) {
  while (!pending_.empty() && pending_.front().number <= reached) {
    settle_batch(pending_.front());
    pending_.pop_front();
  }
  changed_.notify_all();
}

// Under lock_. Signals come last, in order: once one is set, what it tells of may be freed.
void Queue::settle_batch(Batch& batch) {
  std::vector<uint64_t> times;
  recorder_->read(batch.stamps, &times);
  for (size_t i = 0; i < times.size(); ++i)
    batch.stamps[i].first->timestamp.store(times[i], std::memory_order_relaxed);  // released by the set that follows
  batch.runs.clear();
  over_ = batch.number;
  for (auto& [signal, value] : batch.sets) {
    auto found = promises_.find(signal);
    if (found != promises_.end() && found->second.second <= batch.number && found->second.first == value)
      promises_.erase(found);
    signal_set(*signal, value);
  }
}

void Queue::fail(const Failure& failure, const std::string& command) {
  if (context_->lost.exchange(true)) return;
  listener_.lost(failure.said, command);
}

size_t Queue::in_flight() {
  std::lock_guard<std::mutex> guard(lock_);
  return pending_.size();
}

void Queue::give_up() {
  stopping_.store(true);
  for (Lane& lane : lanes_) {
    std::lock_guard<std::mutex> guard(lane.lock);
    lane.changed.notify_all();
  }
  std::lock_guard<std::mutex> guard(lock_);
  work_.notify_all();
  changed_.notify_all();
}

void Queue::end_threads() {
  give_up();
  for (std::thread* each : {&lanes_[0].feeder, &lanes_[1].feeder, &settler_})
    if (each->joinable()) each->join();
}

void Queue::stop() {
  if (!context_->usable() || !semaphore_) return;
  end_threads();
  // Who submits or helps meanwhile, in other threads, leaves; nobody comes in any more, and no thread is started.
  for (Lane& lane : lanes_) std::lock_guard<std::mutex> passed(lane.lock);
  end_threads();
  std::unique_lock<std::mutex> guard(lock_);
  while (helpers_) changed_.wait_for(guard, std::chrono::nanoseconds(kLook));
  uint64_t reached = 0;
  if (!context_->lost.load())  // what was given meanwhile ends soon
    for (int n = 0; n < kMostLooks && wait(given_, &reached) == kTimeout; ++n) {
    }
  int32_t result = context_->call.GetSemaphoreCounterValue(context_->device, semaphore_, &reached);
  // A device that failed runs nothing any more; one on which a command still runs can't be taken down.
  if (result == kSuccess && reached < given_) {
    context_->busy.store(true);
    return;
  }
  pending_.clear();
  for (Lane& lane : lanes_) lane.todo.clear();
  promises_.clear();
  recorder_->close();
  context_->call.DestroySemaphore(context_->device, semaphore_, nullptr);
  gone(Kind::semaphore);
  semaphore_ = 0;
}

}  // namespace hcq::vk
