// The table of functions for Vulkan (lane.hpp): a queue's commands, each recorded into a buffer and given to the device
// as a piece of work of its own.
#include "vulkan/lane.hpp"

#include "core/device.hpp"
#include "core/flights.hpp"
#include "vulkan/batch.hpp"

namespace hcq::vk {

namespace {
constexpr uint32_t kCommands = kFlights;  // a queue has no more of them

struct Lane;

// A command in flight: what Command::event is.
struct Given {
  Lane* lane = nullptr;
  uint64_t number = 0;   // of the piece of work; 0: it isn't given yet
  bool refused = false;  // and won't be
  Recorded recorded;
  std::shared_ptr<Kept> kept;
  Query begin, end;  // of one that is timed
};

// Under the queue's step lock.
struct Lane {
  std::shared_ptr<Served> served;
  std::shared_ptr<Recorder> recorder;
  Given commands[kCommands];
  std::vector<Given*> free;
  std::vector<Given*> ready;  // recorded, not given yet
  std::string refusal;        // why the device took no more
  Work& work() { return *served->work; }
  Context& context() { return *served->work->context; }
};

Given* take(Lane& lane) {
  Given* g = lane.free.back();
  lane.free.pop_back();
  g->number = 0;
  g->refused = false;
  return g;
}

// Without what it holds of the device.
void put(Lane& lane, Given* g) { lane.free.push_back(g); }

void give_back(Lane& lane, Given* g) {
  lane.recorder->give_back(&g->recorded);
  lane.recorder->give_back(&g->begin);
  lane.recorder->give_back(&g->end);
}

// Calls `record` for a command, between its time-stamps if it is timed.
template <class Record>
bool add(Lane& lane, Command* out, bool timed, std::string* error, Record record) {
  Given* g = take(lane);
  bool begun = false;
  try {
    Presence present(lane.context());
    try {
      lane.recorder->begin(&g->recorded, false);
      begun = true;
      if (timed) lane.recorder->stamp(&g->recorded, &g->begin);
      record(g);
      begun = false;
      lane.recorder->end(&g->recorded);
      lane.ready.push_back(g);
      out->event = g;
      return true;
    } catch (const Failure& why) {
      *error = why.said;
      if (begun) lane.context().call.EndCommandBuffer(g->recorded.buffer);
      give_back(lane, g);
    }
  } catch (const Failure& why) {
    *error = why.said;
  }
  put(lane, g);
  return false;
}

void* open(void* context, std::string* error) {
  auto lane = std::make_unique<Lane>();
  lane->served = *static_cast<std::shared_ptr<Served>*>(context);
  for (Given& g : lane->commands) {
    g.lane = lane.get();
    lane->free.push_back(&g);
  }
  try {
    Presence present(lane->context());
    lane->recorder = std::make_shared<Recorder>(lane->served->work);
  } catch (const Failure& why) {
    *error = why.said;
    return nullptr;
  }
  return lane.release();
}

void close(void* opened) { delete static_cast<Lane*>(opened); }

bool exec(void* opened, const Program& program, const uint8_t* arguments, const uint32_t groups[3],
          const uint32_t items[3], Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  return add(lane, out, out->timed, error, [&](Given* g) {
    lane.recorder->launch(&g->recorded, kernel_of(program), arguments, groups, items);
    if (out->timed) lane.recorder->stamp(&g->recorded, &g->end);
  });
}

bool copy(void* opened, uint64_t destination, uint64_t source, uint64_t bytes, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  return add(lane, out, out->timed, error, [&](Given* g) {
    lane.recorder->copy(&g->recorded, destination, source, bytes);
    if (out->timed) lane.recorder->stamp(&g->recorded, &g->end);
  });
}

bool stamp(void* opened, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  return add(lane, out, false, error, [&](Given* g) { lane.recorder->stamp(&g->recorded, &g->end); });
}

// The device's commands are in order: whatever was given before is over by then.
bool follow(void* opened, const Command& other, Command* out, std::string*) {
  const Given& theirs = *static_cast<const Given*>(other.event);
  if (!theirs.number) return false;
  Given* g = take(*static_cast<Lane*>(opened));
  g->number = theirs.number;
  out->event = g;
  return true;
}

bool batch(void* opened, BoundCommands* commands, uint32_t offset, uint32_t end, Command* out, std::string* error) {
  auto& lane = *static_cast<Lane*>(opened);
  std::shared_ptr<Kept> kept;
  try {
    kept = recorded_batch(lane.recorder, commands, offset, end);
  } catch (const Failure& why) {
    *error = why.said;
    return false;
  }
  Given* g = take(lane);
  g->kept = std::move(kept);
  lane.ready.push_back(g);
  out->event = g;
  return true;
}

void flush(void* opened) {
  auto& lane = *static_cast<Lane*>(opened);
  if (lane.ready.empty()) return;
  CommandBuffer buffers[kCommands];
  size_t count = 0;
  uint64_t first = 0;
  for (Given* g : lane.ready) buffers[count++] = g->kept ? g->kept->recorded.buffer : g->recorded.buffer;
  bool given = false;
  try {
    Presence present(lane.context());
    given = lane.work().give(buffers, count, &first, &lane.refusal);
  } catch (const Failure& why) {
    lane.refusal = why.said;
  }
  for (Given* g : lane.ready) {
    g->number = given ? first++ : 0;
    g->refused = !given;
  }
  lane.ready.clear();
}

Over over(const Command& command, std::string* error) {
  const Given& g = *static_cast<const Given*>(command.event);
  Lane& lane = *g.lane;
  if (g.refused) {
    *error = lane.refusal;
    return Over::failed;
  }
  if (!g.number) return Over::no;
  try {
    if (lane.work().known(g.number)) return Over::yes;
    Presence present(lane.context());
    Over over = lane.work().over(g.number, error);
    if (over != Over::no || !lane.work().stopping()) return over;
    *error = "the device was closed before it was done";
  } catch (const Failure& why) {
    *error = why.said;
  }
  return Over::failed;
}

void times(const Command& command, uint64_t given, uint64_t* start, uint64_t* end) {
  Given& g = *static_cast<Given*>(command.event);
  Lane& lane = *g.lane;
  *start = given;
  *end = now_ns();
  if (!g.end.pool) return;
  try {
    Presence present(lane.context());
    uint64_t ended = lane.recorder->read(g.end), began = g.begin.pool ? lane.recorder->read(g.begin) : ended;
    lane.served->clock.times(began, ended, given, start, end);
  } catch (const Failure&) {  // then that is what is known
  }
}

bool tell(const Command& command, Queue* q) {
  const Given& g = *static_cast<const Given*>(command.event);
  return g.number && g.lane->work().tell(g.number, q);
}

uint64_t mark(const Command& command) { return static_cast<const Given*>(command.event)->number; }

void sleep(void* lane, uint64_t number, uint64_t ns) { static_cast<Lane*>(lane)->work().sleep(number, ns); }

void drop(const Command& command) {
  Given* g = static_cast<Given*>(command.event);
  Lane& lane = *g->lane;
  g->kept.reset();
  {
    std::shared_lock<std::shared_mutex> present(lane.context().presence);
    give_back(lane, g);
  }
  put(lane, g);
}

void leave(void* context) { delete static_cast<std::shared_ptr<Served>*>(context); }

constexpr Interface kInterface = {
    open, close, exec,  copy,   flush, over,  times, tell,
    drop, leave, stamp, follow, false, batch, 1,     kEndOfSubmit | kLabelled | kExternalArgs,
    mark, sleep};
}  // namespace

Kept::~Kept() {
  Context& context = *recorder->work()->context;
  if (context.generation != g_generation) return;
  std::shared_lock<std::shared_mutex> present(context.presence);
  recorder->give_back(&recorded);
}

const Interface& interface() { return kInterface; }

}  // namespace hcq::vk
