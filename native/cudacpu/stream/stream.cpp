// When nodes run: streams' queues, the order between streams, the threads that run them. What does not live here: the
// API's entries for streams (stream_api.cpp).
#include "stream/stream.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "api/entry.hpp"
#include "api/handle.hpp"
#include "graph/capture.hpp"
#include "memory/pool.hpp"
#include "stream/threads.hpp"

namespace cudacpu {

thread_local bool in_host_function = false;

namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr size_t most_threads = 128;  // streams that run at once, as on a GPU; the rest waits its turn
constexpr auto longest_idle = std::chrono::seconds(1);  // of a thread: then it ends
constexpr auto shortest_nap = std::chrono::microseconds(20), longest_nap = std::chrono::microseconds(1000);

// One for all devices. Its lock guards every stream's queue and Context::streams; it is held for moments, and nothing
// is run or called under it but the predicates of wait_until().
struct Scheduler {
  std::mutex lock;
  std::condition_variable work;      // threads of the library wait here for a ready stream
  std::condition_variable advanced;  // callers wait here for a node to end
  std::deque<StreamPtr> ready;       // the first of the queue may run
  std::vector<StreamPtr> parked;     // the first of the queue stands at a wait
  size_t threads = 0, idle = 0, callers = 0;
  std::chrono::microseconds nap = shortest_nap;  // until the parked are looked at again
};

Scheduler& scheduler() {
  static auto* one = new Scheduler();  // never destroyed: its threads run until the process is gone
  return *one;
}

bool reached(const Stream::Item& item) {
  return std::all_of(item.after.begin(), item.after.end(),
                     [](const auto& one) { return one.first->completed >= one.second; });
}

void unpark(Scheduler& all) {
  all.nap = shortest_nap;
  if (all.parked.empty()) return;
  std::move(all.parked.begin(), all.parked.end(), std::back_inserter(all.ready));
  all.parked.clear();
  if (all.idle) all.work.notify_one();
}

void work_loop();

// Makes sure that a thread comes to the ready streams.
void call_thread(Scheduler& all) {
  if (all.idle) {
    all.work.notify_one();
  } else if (all.threads < most_threads && start_thread("cuda-stream", work_loop)) {
    all.threads++;  // it counts before it runs: the lock is held here
  }
}

void list(Scheduler& all, const StreamPtr& stream) {
  if (stream->listed || stream->running || stream->queue.empty()) return;
  stream->listed = true;
  int mine = stream->priority.load(std::memory_order_relaxed);  // who sets it meanwhile may come too late
  auto later = std::find_if(all.ready.begin(), all.ready.end(), [&](const StreamPtr& other) {
    return other->priority.load(std::memory_order_relaxed) > mine;
  });
  all.ready.insert(later, stream);  // a lower number goes first
  call_thread(all);
}

void forget(Stream& stream) {
  auto& streams = stream.context.streams;
  streams.erase(std::remove_if(streams.begin(), streams.end(), [&](auto& one) { return one.get() == &stream; }),
                streams.end());
}

// Runs a node outside of the lock; lets go of it there too when it is done, since that may free things of the user's.
CUresult run_node(Lock& hold, Stream& stream, NodePtr& node) {
  hold.unlock();
  CUresult result = stream.context.error();
  if (result) {
    node->skip(stream.context, result);
  } else {
    result = node->run(stream.context);
    if (result && result != again) fail_context(stream.context, result, "");
  }
  if (result != again) node.reset();
  hold.lock();
  return result;
}

// The node is done: the next may run, and who waits for this one.
void finish(Scheduler& all, const StreamPtr& stream) {
  stream->completed++;
  unpark(all);
  if (all.callers) all.advanced.notify_all();
  if (stream->destroyed && stream->queue.empty()) forget(*stream);
}

// Runs the first node of a stream that nobody runs and that isn't listed; whether it is done.
bool step(Scheduler& all, Lock& hold, const StreamPtr& stream) {
  NodePtr node = std::move(stream->queue.front().node);
  stream->running = true;
  // This thread is away for a while: somebody else looks after what is ready or waits.
  if (!all.idle && !(all.ready.empty() && all.parked.empty())) call_thread(all);
  CUresult result = run_node(hold, *stream, node);
  stream->running = false;
  if (result == again) {
    stream->queue.front().node = std::move(node);
    return false;
  }
  stream->queue.pop_front();
  finish(all, stream);
  return true;
}

void park(Scheduler& all, const StreamPtr& stream) {
  if (stream->listed) return;
  stream->listed = true;
  all.parked.push_back(stream);
}

void work_loop() {
  Scheduler& all = scheduler();
  Lock hold(all.lock);
  for (;;) {
    if (all.ready.empty()) {
      all.idle++;
      if (all.parked.empty()) {
        bool bored = all.work.wait_for(hold, longest_idle) == std::cv_status::timeout;
        if (bored && all.ready.empty() && all.parked.empty()) {
          all.idle--;
          all.threads--;
          return;
        }
      } else if (all.work.wait_for(hold, all.nap) == std::cv_status::timeout) {
        // A memory word that a stream waits for may have been written by anybody, who tells nobody.
        auto next = std::min(all.nap * 2, longest_nap);
        unpark(all);
        all.nap = next;
      }
      all.idle--;
      continue;
    }
    StreamPtr stream = all.ready.front();
    all.ready.pop_front();
    stream->listed = false;
    if (stream->running || stream->queue.empty()) continue;  // a caller helped
    if (reached(stream->queue.front()) && step(all, hold, stream)) {
      list(all, stream);
    } else if (!stream->running && !stream->queue.empty()) {
      park(all, stream);
    }
  }
}

// What a node has to wait for: the legacy stream and the blocking streams of a context wait for each other.
void order(const StreamPtr& stream, Stream::Item& item) {
  if (!stream->blocking()) return;
  Context& context = stream->context;
  auto add = [&](const StreamPtr& other) {
    if (other->completed < other->submitted) item.after.emplace_back(other, other->submitted);
  };
  if (stream != context.legacy) return add(context.legacy);
  for (const StreamPtr& other : context.streams) {
    if (other != stream && other->blocking()) add(other);
  }
}

// Waits for the streams to come so far, and runs what of theirs can run.
void wait_for(Scheduler& all, Lock& hold, const std::vector<std::pair<StreamPtr, uint64_t>>& goals) {
  all.callers++;
  for (;;) {
    bool done = true, helped = false;
    for (const auto& [stream, goal] : goals) {
      if (stream->completed >= goal) continue;
      done = false;
      if (stream->running || stream->queue.empty() || !reached(stream->queue.front())) continue;
      if (step(all, hold, stream)) {
        helped = true;
        list(all, stream);
      } else if (!stream->queue.empty()) {
        park(all, stream);
        call_thread(all);
      }
    }
    if (done) break;
    if (!helped) all.advanced.wait(hold);
  }
  all.callers--;
}

}  // namespace

static uint64_t next_stream_id() {
  static std::atomic<uint64_t> next{1};  // only has to differ
  return next.fetch_add(1, std::memory_order_relaxed);
}

Stream::Stream(Context& context, unsigned flags, int priority)
    : context(context), flags(flags), priority(priority), id(next_stream_id()) {}

CUresult find_stream(Context& current, CUstream handle, StreamPtr* out) {
  if (!handle || handle == CU_STREAM_LEGACY) return *out = current.legacy, CUDA_SUCCESS;
  if (handle == CU_STREAM_PER_THREAD) return *out = current.per_thread(), CUDA_SUCCESS;
  *out = handles<Stream>().share(handle);
  return *out ? (*out)->context.error() : CUDA_ERROR_INVALID_HANDLE;
}

void add_stream(const StreamPtr& stream) {
  std::lock_guard<std::mutex> hold(scheduler().lock);
  stream->context.streams.push_back(stream);
}

void end_stream(const StreamPtr& stream) {
  std::lock_guard<std::mutex> hold(scheduler().lock);
  stream->destroyed = true;
  stream->handle = nullptr;  // its slot may become another's while the stream still has work
  if (stream->queue.empty() && !stream->running) forget(*stream);
}

void end_streams(Context& context) {
  Scheduler& all = scheduler();
  Lock hold(all.lock);
  unpark(all);
  std::vector<std::pair<StreamPtr, uint64_t>> goals;
  for (const StreamPtr& stream : context.streams) goals.emplace_back(stream, stream->submitted);
  wait_for(all, hold, goals);
  handles<Stream>().remove_if([&](Stream& one) { return &one.context == &context; });
  context.streams.clear();
}

CUresult submit(CUstream handle, NodePtr node) {
  Context* current = Context::current();
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  StreamPtr stream;
  CUresult result = find_stream(*current, handle, &stream);
  return result ? result : submit(stream, std::move(node));
}

CUresult submit(const StreamPtr& stream, NodePtr node) {
  if (is_capturing(*stream)) return capture_node(*stream, node);
  CUresult result = check_legacy(*stream);
  return result ? result : enqueue(stream, std::move(node));
}

CUresult enqueue(const StreamPtr& stream, NodePtr node, uint64_t* position) {
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  Scheduler& all = scheduler();
  Lock hold(all.lock);
  // With the lock, so that the end of a context waits for what came before it and nothing comes after.
  if (CUresult failed = stream->context.error()) return failed;
  Stream::Item item{std::move(node), {}};
  order(stream, item);
  bool brief = stream->queue.empty() && item.after.empty() && item.node->brief();
  stream->queue.push_back(std::move(item));
  stream->submitted++;
  if (position) *position = stream->submitted;
  if (brief) step(all, hold, stream);
  list(all, stream);  // what others have added meanwhile, too
  return CUDA_SUCCESS;
}

namespace {

using Goals = std::vector<std::pair<StreamPtr, uint64_t>>;

// Waits for what `goals(scheduler)` says, and gives back what pools needn't keep then.
template <class F>
CUresult wait_for_goals(Context& context, F&& goals) {
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  Scheduler& all = scheduler();
  Lock hold(all.lock);
  wait_for(all, hold, goals());
  hold.unlock();
  trim_pools();
  return context.error();
}

}  // namespace

CUresult synchronize(const StreamPtr& stream) {
  return wait_for_goals(stream->context, [&] { return Goals{{stream, stream->submitted}}; });
}

CUresult synchronize_to(const StreamPtr& stream, uint64_t position) {
  return wait_for_goals(stream->context, [&] { return Goals{{stream, position}}; });
}

CUresult synchronize(Context& context) {
  return wait_for_goals(context, [&] {
    Goals goals;
    for (const StreamPtr& stream : context.streams) goals.emplace_back(stream, stream->submitted);
    return goals;
  });
}

bool idle(const StreamPtr& stream) {
  std::lock_guard<std::mutex> hold(scheduler().lock);
  return stream->completed == stream->submitted;
}

void wait_until(const std::function<bool()>& done) {
  Scheduler& all = scheduler();
  Lock hold(all.lock);
  all.callers++;
  all.advanced.wait(hold, done);
  all.callers--;
}

void progress() {
  Scheduler& all = scheduler();
  std::lock_guard<std::mutex> hold(all.lock);
  unpark(all);
  if (all.callers) all.advanced.notify_all();
}

}  // namespace cudacpu
