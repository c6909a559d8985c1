// The table of functions for CUDA (lane.hpp): a stream a queue, and a word of memory that the stream raises behind each
// command, by which the host and other streams know how far it is. Where a device can't write words, events say it.
#include "cuda/lane.hpp"

#include "core/device.hpp"
#include "core/flights.hpp"
#include "cuda/batch.hpp"
#include "cuda/teller.hpp"

namespace hcq::cuda {

namespace {
constexpr uint32_t kCommands = kFlights;  // a queue has no more of them
constexpr uint32_t kWrites = 8;           // that are given to the stream at a time
constexpr uint32_t kLooks = 64;           // looks at the word, before the stream is asked whether it failed

struct Lane;

// A command in flight: what Command::event is.
struct Given {
  Lane* lane = nullptr;
  uint64_t number = 0;     // the word's value once it is over
  Handle begin = nullptr;  // an event before it, of one that is timed
  Handle end = nullptr;    // an event behind it, of one that is timed or has no word to look at
};

// All but `suspect` under the queue's step lock.
struct Lane {
  std::shared_ptr<Context> context;
  Handle stream = nullptr;
  Word word{nullptr, 0};
  uint64_t given = 0;
  uint32_t looks = 0;
  Handle told = nullptr;                // the event that the teller waits for
  std::atomic<bool> suspect{false};     // relaxed: the next look asks the stream
  MemoryOperation writes[kWrites];      // behind the last command, not given yet; the word's is the last
  uint32_t held = 0;                    // how many
  std::string broken;                   // why some could not be given
  Mapped slab;                          // the last that had a signal
  bool inside = false, pushed = false;  // its context is this thread's, from a command until flush()
  Given commands[kCommands];
  std::vector<Given*> free;
  std::vector<Handle> events;  // that are not in use; with timing
  Teller teller;
};

bool failed(Result result, const char* what, std::string* error) {
  if (result == kSuccess) return false;
  *error = failure_of(what, result);
  return true;
}

bool take_event(Lane& lane, Handle* out, std::string* error) {
  if (lane.events.empty()) return !failed(api().event_create(out, 0), "cuEventCreate", error);
  *out = lane.events.back();
  lane.events.pop_back();
  return true;
}

void give_event(Lane& lane, Handle* event) {
  if (*event) lane.events.push_back(*event);
  *event = nullptr;
}

bool record_event(Lane& lane, Handle* out, std::string* error) {
  return take_event(lane, out, error) && !failed(api().event_record(*out, lane.stream), "cuEventRecord", error);
}

// Makes the lane's context this thread's, up to leave_context(): once for the commands of a step, not for each.
void enter_context(Lane& lane) {
  if (lane.inside) return;
  lane.pushed = api().push(lane.context->handle()) == kSuccess;
  lane.inside = true;
}

void leave_context(Lane& lane) {
  Handle ours = nullptr;
  if (lane.inside && lane.pushed) api().pop(&ours);
  lane.inside = false;
}

// Gives the stream what is to be written behind its last command.
void write(Lane& lane) {
  const MemoryOperation& first = lane.writes[0];
  bool several = lane.held > 1;
  Result result = several ? api().batch_operations(lane.stream, lane.held, lane.writes, 0)
                          : api().write_value(lane.stream, first.address, first.value, 0);
  lane.held = 0;
  if (result != kSuccess && lane.broken.empty())
    lane.broken = failure_of(several ? "cuStreamBatchMemOp" : "cuStreamWriteValue64", result);
}

void hold(Lane& lane, Address at, uint64_t value) {
  lane.writes[lane.held++] = MemoryOperation{kWriteValue64, at, value, 0, 0, 0};
}

// Where the stream writes a signal's value; 0: it can't.
Address value_at(Lane& lane, const Signal* signal) {
  const void* value = &signal->memory->value;
  if (lane.slab.holds(value)) return lane.slab.of(value);
  Mapped mapped = lane.context->mapped(signal);
  if (signal->pooled) lane.slab = mapped;  // slabs stay; callers' memory does not
  return mapped.of(value);
}

// What comes before a command, and behind it. The driver has what was given in between, be it that the rest fails.
Given* begin_command(Lane& lane, bool timed, std::string* error) {
  enter_context(lane);
  if (lane.held) write(lane);
  Given* g = lane.free.back();
  lane.free.pop_back();
  g->number = lane.given + 1;
  if (!timed || record_event(lane, &g->begin, error)) return g;
  give_event(lane, &g->begin);
  lane.free.push_back(g);
  leave_context(lane);
  return nullptr;
}

bool end_command(Lane& lane, Given* g, bool done, bool timed, Command* out, std::string* error) {
  if (done && (timed || !lane.word.host)) done = record_event(lane, &g->end, error);
  if (done) {
    lane.given = g->number;
    out->event = g;
    if (!lane.word.host) return true;
    // The signal before the word: who sees the word wakes those who wait for the signal.
    Address at = out->sets ? value_at(lane, out->sets) : 0;
    if (at) hold(lane, at, out->value);
    hold(lane, lane.word.device, g->number);
    out->written = at != 0;
    if (out->sets) write(lane);  // else signals may follow, which are written with it
    return true;
  }
  give_event(lane, &g->begin);
  give_event(lane, &g->end);
  lane.free.push_back(g);
  leave_context(lane);
  return false;
}

void close(void* opened) {
  auto* lane = static_cast<Lane*>(opened);
  if (lane->stream) --g_held.streams;
  if (!lane->context->abandoned()) {
    Current current(*lane->context);
    for (Handle event : lane->events) api().event_destroy(event);
    if (lane->told) api().event_destroy(lane->told);
    if (lane->stream) api().stream_destroy(lane->stream);
    if (lane->word.host) lane->context->give_word(lane->word);
  }
  delete lane;
}

void* open(void* context, std::string* error) {
  auto lane = std::make_unique<Lane>();
  lane->context = *static_cast<std::shared_ptr<Context>*>(context);
  for (Given& g : lane->commands) {
    g.lane = lane.get();
    lane->free.push_back(&g);
  }
  Current current(*lane->context);
  bool opened = !failed(api().stream_create(&lane->stream, kNonBlocking), "cuStreamCreate", error);
  if (opened) ++g_held.streams;
  opened = opened && !failed(api().event_create(&lane->told, kBlockingSync | kDisableTiming), "cuEventCreate", error);
  try {
    if (opened && lane->context->words()) lane->word = lane->context->take_word();
  } catch (const Failure& why) {
    *error = why.said;
    opened = false;
  }
  if (opened) return lane.release();
  close(lane.release());
  return nullptr;
}

bool exec(void* opened, const Program& program, const uint8_t* arguments, const uint32_t groups[3],
          const uint32_t items[3], Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  const auto& kernel = *static_cast<const Kernel*>(program.entry);
  Given* g = begin_command(lane, out->timed, error);
  if (!g) return false;
  void* pointers[kMostArguments];
  point(kernel, arguments, pointers);
  Result result = kernel.together ? api().launch_together(kernel.function, groups[0], groups[1], groups[2], items[0],
                                                          items[1], items[2], kernel.local, lane.stream, pointers)
                                  : api().launch(kernel.function, groups[0], groups[1], groups[2], items[0], items[1],
                                                 items[2], kernel.local, lane.stream, pointers, nullptr);
  const char* call = kernel.together ? "cuLaunchCooperativeKernel" : "cuLaunchKernel";
  return end_command(lane, g, !failed(result, call, error), out->timed, out, error);
}

bool copy(void* opened, uint64_t destination, uint64_t source, uint64_t bytes, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  uint64_t apart = destination > source ? destination - source : source - destination;
  Given* g = begin_command(lane, out->timed, error);
  if (!g) return false;
  bool done = true;
  if (apart >= bytes) {
    done = !failed(api().copy_async(destination, source, bytes, lane.stream), "cuMemcpyAsync", error);
  } else {
    // Ranges that overlap are copied as if read first: by way of memory that the stream itself gives back.
    try {
      out->scratch = reinterpret_cast<void*>(lane.context->allocate(bytes, Use::device));
    } catch (const Failure& why) {
      *error = why.said;
      done = false;
    }
    auto between = reinterpret_cast<Address>(out->scratch);
    done = done && !failed(api().copy_async(between, source, bytes, lane.stream), "cuMemcpyAsync", error) &&
           !failed(api().copy_async(destination, between, bytes, lane.stream), "cuMemcpyAsync", error);
  }
  if (end_command(lane, g, done, out->timed, out, error)) return true;
  out->scratch = nullptr;  // leaked: a copy into it may be under way
  return false;
}

bool stamp(void* opened, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  Given* g = begin_command(lane, false, error);
  return g && end_command(lane, g, true, true, out, error);
}

bool follow(void* opened, const Command& other, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  const Given& theirs = *static_cast<const Given*>(other.event);
  Given* g = begin_command(lane, false, error);
  if (!g) return false;
  bool done = theirs.lane->word.host
                  ? !failed(api().wait_value(lane.stream, theirs.lane->word.device, theirs.number, kWaitAtLeast),
                            "cuStreamWaitValue64", error)
                  : !failed(api().stream_wait_event(lane.stream, theirs.end, 0), "cuStreamWaitEvent", error);
  return end_command(lane, g, done, false, out, error);
}

bool batch(void* opened, BoundCommands* commands, uint32_t offset, uint32_t end, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  Given* g = begin_command(lane, out->timed, error);
  if (!g) return false;
  bool done = launch_batch(lane.context, lane.stream, commands, offset, end, error);
  return end_command(lane, g, done, out->timed, out, error);
}

bool signal(void* opened, Command* out) {
  auto& lane = *static_cast<Lane*>(opened);
  Address at = lane.word.host ? value_at(lane, out->sets) : 0;
  if (!at) return false;
  if (lane.held && lane.held < kWrites) {
    lane.writes[lane.held] = lane.writes[lane.held - 1];  // the word stays the last
    lane.writes[lane.held - 1] = MemoryOperation{kWriteValue64, at, out->value, 0, 0, 0};
    ++lane.held;
    out->written = true;
    return true;
  }
  std::string unsaid;
  Given* g = begin_command(lane, false, &unsaid);
  return g && end_command(lane, g, true, false, out, &unsaid) && out->written;
}

void flush(void* opened) {
  auto& lane = *static_cast<Lane*>(opened);
  if (lane.held) write(lane);  // within enter_context()
  leave_context(lane);
}

Over over(const Command& command, std::string* error) {
  const Given& g = *static_cast<const Given*>(command.event);
  Lane& lane = *g.lane;
  if (lane.word.host) {
    // acquire: what the command wrote is there for whoever sees the word
    if (lane.word.host->load(std::memory_order_acquire) >= g.number) return Over::yes;
    if (++lane.looks % kLooks && !lane.suspect.load(std::memory_order_relaxed)) return Over::no;
  }
  Current current(*lane.context);
  Result result = lane.word.host ? api().stream_query(lane.stream) : api().event_query(g.end);
  if (result == kNotReady) {
    lane.suspect.store(false, std::memory_order_relaxed);
    return Over::no;
  }
  if (result == kSuccess) {
    if (!lane.word.host || lane.word.host->load(std::memory_order_acquire) >= g.number) return Over::yes;
    // The word would be there: what raises it was not given yet, or refused, or the driver is about to say what failed.
    if (!lane.broken.empty()) {
      *error = lane.broken;
      return Over::failed;
    }
    if (lane.held) write(lane);
    lane.suspect.store(true, std::memory_order_relaxed);
    return Over::no;
  }
  lane.context->abandon();
  *error = "CUDA says " + words(result);
  return Over::failed;
}

void times(const Command& command, uint64_t given, uint64_t* start, uint64_t* end) {
  Given& g = *static_cast<Given*>(command.event);
  Lane& lane = *g.lane;
  if (!g.end || !lane.context->times(g.begin, &g.end, given, start, end)) {
    *start = given;
    *end = now_ns();
  }
}

bool tell(const Command& command, Queue* q) {
  Lane& lane = *static_cast<const Given*>(command.event)->lane;
  {
    Current current(*lane.context);
    if (api().event_record(lane.told, lane.stream) != kSuccess) {
      lane.suspect.store(true, std::memory_order_relaxed);
      return false;
    }
  }
  return lane.teller.tell(q, lane.context->handle(), lane.told, &lane.suspect);
}

void drop(const Command& command) {
  Given* g = static_cast<Given*>(command.event);
  Lane& lane = *g->lane;
  give_event(lane, &g->begin);
  give_event(lane, &g->end);
  lane.free.push_back(g);
  if (command.scratch) lane.context->free(reinterpret_cast<Address>(command.scratch));
}

bool passed(const Command& command) {
  const Given& g = *static_cast<const Given*>(command.event);
  Lane& lane = *g.lane;
  // acquire, as in over(); the word stays as it was when the context broke
  if (lane.word.host) return lane.word.host->load(std::memory_order_acquire) >= g.number;
  Current current(*lane.context);
  return api().event_query(g.end) == kSuccess;
}

bool broken(void* opened, std::string* error) {
  auto& context = **static_cast<std::shared_ptr<Context>*>(opened);
  Result result = context.state();
  if (result == kSuccess || result == kNotReady) return false;
  *error = "CUDA says " + words(result);
  return true;
}

void leave(void* context) { delete static_cast<std::shared_ptr<Context>*>(context); }

constexpr Interface table() {
  Interface all = {open, close, exec, copy, flush, over, times, tell, drop, leave, stamp, follow, true, batch};
  all.signal = signal;
  all.passed = passed;
  all.broken = broken;
  return all;
}
constexpr Interface kInterface = table();
}  // namespace

const Interface& interface() { return kInterface; }

}  // namespace hcq::cuda
