// The command processor under many threads, without Python: built with the thread sanitizer by test_native_stress.py.
// Producers submit counted work to several queues that wait for each other's signals; every kernel checks its order.
#include <Python.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/device.hpp"
#include "core/interface.hpp"
#include "core/lifecycle.hpp"
#include "core/program.hpp"
#include "core/queue_list.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "cpu/fault.hpp"

extern "C" void _Py_Dealloc(PyObject*) {}  // retire.cpp can drop Python objects; here there are none

namespace hcq {
__thread Running g_running __attribute__((tls_model("initial-exec")));  // no kernels of native/cpu here
const Program g_copying;
void fault_prepare_thread() { g_running.prepared = true; }
// Kernels: the arguments are the address of a counter and the value it must have; groups add to a second counter.
struct Work {
  uint64_t* sequence;
  uint64_t expected;
  std::atomic<uint64_t>* groups;
};
std::atomic<uint64_t> g_errors{0};

void run_groups(const Program& program, const uint8_t* kernargs, const uint32_t[3], const uint32_t[3], uint64_t first,
                uint64_t last) {
  Work w;
  std::memcpy(&w, kernargs, sizeof w);
  if (program.name == "step") {
    if (*w.sequence != w.expected) g_errors.fetch_add(1);
    ++*w.sequence;  // plain: the sanitizer sees it if two threads ever run commands of one queue at once
  } else {
    for (uint64_t i = first; i < last; ++i)
      for (int spin = 0; spin < 50; ++spin) cpu_relax();
    w.groups->fetch_add(last - first);
  }
}
}  // namespace hcq

using namespace hcq;

namespace {
// An interface whose lanes are threads: it runs commands in order, and calls back when asked to. Programs called "fail"
// fail while they run, and "refuse" when they are given.
struct Event {
  std::mutex lock;
  Over state = Over::no;
  Queue* told = nullptr;
};
using EventPtr = std::shared_ptr<Event>;

class Lane {
 public:
  Lane() : thread_([this] { run(); }) {}
  ~Lane() {
    give(nullptr, nullptr);
    thread_.join();
  }
  void give(std::function<bool()> work, EventPtr event) {
    std::lock_guard<std::mutex> guard(lock_);
    todo_.emplace_back(std::move(work), std::move(event));
    more_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(lock_);
      more_.wait(lock, [this] { return !todo_.empty(); });
      auto [work, event] = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      if (!event) return;
      bool well = work();
      event->lock.lock();
      event->state = well ? Over::yes : Over::failed;
      Queue* q = event->told;
      event->lock.unlock();
      if (q) commands_over(q);
    }
  }
  std::mutex lock_;
  std::condition_variable more_;
  std::deque<std::pair<std::function<bool()>, EventPtr>> todo_;
  std::thread thread_;
};

EventPtr& event_of(const Command& command) { return *static_cast<EventPtr*>(command.event); }

bool give(void* lane, std::function<bool()> work, Command* out) {
  auto* event = new EventPtr(std::make_shared<Event>());
  out->event = event;
  static_cast<Lane*>(lane)->give(std::move(work), *event);
  return true;
}

const Interface kThreads = {
    [](void*, std::string*) -> void* { return new Lane; },
    [](void* lane) { delete static_cast<Lane*>(lane); },
    [](void* lane, const Program& program, const uint8_t* arguments, const uint32_t groups[3], const uint32_t[3],
       Command* out, std::string* error) {
      *error = "refused";
      if (program.name == "refuse") return false;
      Work w;
      std::memcpy(&w, arguments, sizeof w);
      const Program* p = &program;
      uint64_t count = groups[0];
      return give(
          lane,
          [=] {
            if (p->name == "fail") return false;
            run_groups(*p, reinterpret_cast<const uint8_t*>(&w), nullptr, nullptr, 0, count);
            return true;
          },
          out);
    },
    [](void* lane, uint64_t to, uint64_t from, uint64_t bytes, Command* out, std::string*) {
      return give(
          lane,
          [=] {
            std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
            return true;
          },
          out);
    },
    [](void*) {},
    [](const Command& command, std::string* error) {
      std::lock_guard<std::mutex> guard(event_of(command)->lock);
      *error = "failed";
      return event_of(command)->state;
    },
    [](const Command&, uint64_t given, uint64_t* start, uint64_t* end) {
      *start = given;
      *end = now_ns();
    },
    [](const Command& command, Queue* q) {
      EventPtr event = event_of(command);
      event->lock.lock();
      bool over = event->state != Over::no;
      if (!over) event->told = q;
      event->lock.unlock();
      if (over) commands_over(q);  // at once, by the thread that asks
      return true;
    },
    [](const Command& command) { delete static_cast<EventPtr*>(command.event); },
    [](void*) {},
};

void publish_exec(Queue* q, Timeline* t, Program* p, uint32_t groups, const Work& w) {
  for (;;) {
    t->lock.lock();
    q->produce.lock();
    if (queue_room(q, 2, 2) == Room::yes) break;
    q->produce.unlock();
    t->lock.unlock();
    step(q, true, now_ns() + 20000);
  }
  auto* e = reinterpret_cast<ExecPacket*>(queue_write(q, 2));
  uint64_t value = t->next.fetch_add(1);
  e->header = {PacketType::exec, 2, kEndOfSubmit | kWaitPrevious | kCompletes, ++q->records};
  e->program = p;
  e->signal = t->signal;
  e->value = value;
  e->groups[0] = groups;
  e->groups[1] = e->groups[2] = e->items[0] = e->items[1] = e->items[2] = 1;
  std::memcpy(inline_arguments(e), &w, sizeof w);
  t->signal->setter.store(q);
  queue_publish(q);
  q->produce.unlock();
  t->lock.unlock();
  begin(q);
}

// Takes the produce lock once `units` fit.
void room(Queue* q, uint32_t units) {
  for (;;) {
    q->produce.lock();
    if (queue_room(q, units, units) == Room::yes) return;
    q->produce.unlock();
    step(q, true, now_ns() + 20000);
  }
}

void publish_wait(Queue* q, Signal* s, uint64_t value) {
  room(q, 1);
  auto* p = reinterpret_cast<SignalPacket*>(queue_write(q, 1));
  p->header = {PacketType::wait, 1, kEndOfSubmit, ++q->records};
  p->signal = s;
  p->value = value;
  queue_publish(q);
  q->produce.unlock();
  begin(q);
}

void publish_copy(Queue* q, Timeline* t, void* dest, const void* source, uint64_t bytes) {
  t->lock.lock();
  room(q, 1);
  auto* p = reinterpret_cast<CopyPacket*>(queue_write(q, 1));
  p->header = {PacketType::copy, 1, kEndOfSubmit | kWaitPrevious | kCompletes, ++q->records};
  p->destination = reinterpret_cast<uint64_t>(dest);
  p->source = reinterpret_cast<uint64_t>(source);
  p->bytes = bytes;
  p->signal = t->signal;
  p->value = t->next.fetch_add(1);
  p->timing = nullptr;
  queue_publish(q);
  q->produce.unlock();
  t->lock.unlock();
  begin(q);
}

// Bound commands: a launch, and a signal whose value every submit patches.
struct Bound {
  BoundCommands commands;
  Work work;
  Signal* signal = signal_create(0);
  Bound(Program* program, std::atomic<uint64_t>* groups) : work{nullptr, 0, groups} {
    commands.units = 3;
    commands.memory = static_cast<uint8_t*>(std::aligned_alloc(kUnit, 3 * kUnit));
    std::memset(commands.memory, 0, 3 * kUnit);
    auto* e = reinterpret_cast<ExecPacket*>(commands.memory);
    e->header = {PacketType::exec, 2, kExternalArgs, 0};
    e->program = program;
    for (int i = 0; i < 3; ++i) e->groups[i] = e->items[i] = 1;
    reinterpret_cast<ExecExtra*>(e + 1)->arguments = reinterpret_cast<uint8_t*>(&work);
    auto* s = reinterpret_cast<SignalPacket*>(commands.memory + 2 * kUnit);
    s->header = {PacketType::signal, 1, 0, 0};
    s->signal = signal;
  }
  void publish(Queue* q, uint32_t groups, uint64_t value) {
    room(q, 2);
    auto* p = reinterpret_cast<IndirectPacket*>(queue_write(q, 2));
    p->header = {PacketType::indirect, 2, kEndOfSubmit, ++q->records};
    p->commands = &commands;
    p->patches = 2;
    p->patch_list = nullptr;
    Patch patches[2]{};
    patches[0].what = kPatchGroups;
    patches[0].sizes.groups[0] = groups;
    patches[0].sizes.groups[1] = patches[0].sizes.groups[2] = 1;
    patches[1].offset = 2;
    patches[1].what = kPatchValue;
    patches[1].signal.value = value;
    std::memcpy(static_cast<void*>(p + 1), patches, sizeof patches);
    queue_publish(q);
    q->produce.unlock();
    begin(q);
  }
};

// A device lost while one of its queues is blocked and others wait for it: everything ends, and what was to come fails.
void lose_one(unsigned round) {
  Device* d = device_create("lost");
  Device* other = device_create("other");
  d->timeline.signal = signal_create(0);
  other->timeline.signal = signal_create(0);
  Signal *never = signal_create(0), *mine = signal_create(0);
  Queue *q = device_queue(d, QueueKind::compute), *r = device_queue(other, QueueKind::compute);
  publish_wait(q, never, 1);
  publish_wait(r, d->timeline.signal, 1);
  std::thread loser([&] {
    for (unsigned i = 0; i < round % 7 * 100; ++i) cpu_relax();
    device_lose(d, fault_record(Fault{"lost", "none", "test", 0}));
  });
  signal_release(never);  // only the queue knows it
  for (int i = 0; i < 4; ++i) publish_wait(q, mine, 0);
  loser.join();
  for (Queue* each : {q, r})
    while (each->has_work()) step(each, true, now_ns() + 20000);
  if (signal_reached(*d->timeline.signal->memory, 1) != Reached::failed) g_errors.fetch_add(1);
  if (other->fault.load() != 0 || other->reported.load() == 0) g_errors.fetch_add(1);
  signal_release(mine);
  Signal *s = d->timeline.signal, *t = other->timeline.signal;
  device_release(d);  // its records are used again by the next round
  device_release(other);
  signal_release(s);
  signal_release(t);
  run_retired();
}
// A device lost by a command that an interface refused, or that failed there: what came before is done, what comes
// after fails.
void lose_in_flight(Program* good, Program* bad) {
  Device* d = device_create("flights");
  d->interface = &kThreads;
  d->timeline.signal = signal_create(0);
  Queue* q = device_queue(d, QueueKind::compute);
  uint64_t sequence = 0;
  for (uint64_t i = 0; i < 3; ++i) publish_exec(q, &d->timeline, good, 1, Work{&sequence, i, nullptr});
  publish_exec(q, &d->timeline, bad, 1, Work{});
  publish_exec(q, &d->timeline, good, 1, Work{&sequence, 3, nullptr});
  while (q->has_work()) step(q, true, now_ns() + 20000);
  const SignalMemory& timeline = *d->timeline.signal->memory;
  if (sequence < 3 || timeline.value.load() < 3 || signal_reached(timeline, 5) != Reached::failed || !d->fault.load())
    g_errors.fetch_add(1);
  Signal* s = d->timeline.signal;
  device_release(d);
  signal_release(s);
  run_retired();
}
}  // namespace

int main(int argc, char** argv) {
  unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2000;
  prepare_for_fork();
  set_worker_limit(3);
  if (argc > 2) {  // somebody records, and looks at the records all the time
    record_begin(1 << 22);
    std::thread([] {
      for (;;) {
        record_snapshot(0);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }).detach();
  }
  Program* step_program = new Program;
  step_program->name = "step";
  step_program->kind = EntryKind::plain;
  Program* wide = new Program;
  wide->name = "wide";
  wide->kind = EntryKind::group;

  constexpr int kDevices = 3;
  std::vector<Device*> devices;
  for (int i = 0; i < kDevices; ++i) {
    devices.push_back(device_create("D" + std::to_string(i)));
    devices[i]->timeline.signal = signal_create(0);
  }
  devices[1]->interface = &kThreads;
  Program* bad[2];
  for (int i = 0; i < 2; ++i) {
    bad[i] = new Program;
    bad[i]->name = i ? "fail" : "refuse";
    bad[i]->kind = EntryKind::elsewhere;
  }
  std::vector<uint64_t> sequence(kDevices, 0);
  std::vector<std::atomic<uint64_t>> groups(kDevices);
  std::vector<uint64_t> wide_groups(kDevices, 0);

  // A host thread sets, late, what queues wait for.
  std::vector<Signal*> gates;
  std::vector<std::atomic<uint64_t>> wanted(kDevices);
  for (int i = 0; i < kDevices; ++i) gates.push_back(signal_create(0));
  std::atomic<bool> over{false};
  std::thread host([&] {
    uint64_t calls = 0;
    while (!over.load()) {
      for (int i = 0; i < kDevices; ++i)
        if (uint64_t value = wanted[i].load(); gates[i]->memory->value.load() < value)
          signal_set(*gates[i]->memory, value);
      std::atomic<uint64_t> sum{0};
      parallel_for(
          16, [](void* p, uint64_t i) { static_cast<std::atomic<uint64_t>*>(p)->fetch_add(i); }, &sum);
      if (sum.load() != 120) g_errors.fetch_add(1);
      if (++calls % 16 == 0) lose_one(static_cast<unsigned>(calls));
      if (calls % 32 == 0) lose_in_flight(step_program, bad[calls / 32 % 2]);
    }
  });

  auto produce = [&](int id) {
    Bound bound(wide, &groups[id]);
    uint64_t submits = 0;
    constexpr size_t kBytes = 3 << 19;
    std::vector<char> from(kBytes), to(kBytes);
    std::mt19937 random(static_cast<unsigned>(id) + 1);
    Device* d = devices[id];
    Queue* q = device_queue(d, QueueKind::compute);
    uint64_t steps = 0;
    for (unsigned r = 0; r < rounds; ++r) {
      unsigned what = random() % 16;
      if (what < 10) {
        publish_exec(q, &d->timeline, step_program, 1, Work{&sequence[id], steps++, &groups[id]});
      } else if (what < 12) {
        uint32_t n = 1 + random() % 64;
        wide_groups[id] += n;
        publish_exec(q, &d->timeline, wide, n, Work{&sequence[id], 0, &groups[id]});
      } else if (what == 12) {
        // Wait for what the previous device has published so far: never a cycle, since that is already queued.
        Device* other = devices[(id + kDevices - 1) % kDevices];
        publish_wait(q, other->timeline.signal,
                     other->timeline.next.load() > 1 && id > 0 ? other->timeline.next.load() - 1 : 0);
      } else if (what == 13) {
        signal_release(signal_create(0));
        publish_wait(q, gates[id], wanted[id].fetch_add(1) + 1);
        uint32_t n = 1 + random() % 8;
        wide_groups[id] += n;
        bound.publish(q, n, ++submits);
      } else if (what == 14 && r % 8 == 0) {
        // Alone on the bytes: behind what is queued, and over before they are looked at.
        from[r % kBytes] = static_cast<char>(r);
        publish_copy(device_queue(d, QueueKind::copy), &d->timeline, to.data(), from.data(), kBytes);
        uint64_t value = d->timeline.next.load() - 1;
        while (d->timeline.signal->memory->value.load(std::memory_order_acquire) < value) {
          step(q, true, now_ns() + 20000);
          step(device_queue(d, QueueKind::copy), true, now_ns() + 20000);
        }
        if (to[r % kBytes] != from[r % kBytes]) g_errors.fetch_add(1);
      } else {
        // Wait on this thread, stepping the queue, as a Python thread does.
        uint64_t position = q->tail.load();
        while (q->done.value.load(std::memory_order_acquire) < position) step(q, true, now_ns() + 20000);
      }
    }
    uint64_t position = q->tail.load();
    while (q->done.value.load(std::memory_order_acquire) < position) {
      step(q, true, now_ns() + 20000);
      cpu_relax();
    }
    if (bound.signal->memory->value.load() != submits) g_errors.fetch_add(1);
    if (sequence[id] != steps) g_errors.fetch_add(1);
    if (groups[id].load() != wide_groups[id]) g_errors.fetch_add(1);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kDevices; ++i) threads.emplace_back(produce, i);
  for (auto& t : threads) t.join();
  over.store(true);
  host.join();
  std::printf("%llu errors, %u threads\n", static_cast<unsigned long long>(g_errors.load()), scheduler_threads());
  std::fflush(stdout);
  std::_Exit(g_errors.load() ? 1 : 0);
}
