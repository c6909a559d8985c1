// The command processor under many threads, without Python: built with the thread sanitizer by test_native_stress.py.
// Producers submit counted work to several queues that wait for each other's signals; every kernel checks its order.
#include <Python.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/device.hpp"
#include "core/lifecycle.hpp"
#include "core/program.hpp"
#include "core/queue_list.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "cpu/fault.hpp"

extern "C" void _Py_Dealloc(PyObject*) {}  // retire.cpp can drop Python objects; here there are none

namespace hcq {
__thread Running g_running __attribute__((tls_model("initial-exec")));  // no kernels of native/cpu here
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
  doorbell(q);
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
  doorbell(q);
}
}  // namespace

int main(int argc, char** argv) {
  unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2000;
  prepare_for_fork();
  set_worker_limit(3);
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
  std::vector<uint64_t> sequence(kDevices, 0);
  std::vector<std::atomic<uint64_t>> groups(kDevices);
  std::vector<uint64_t> wide_groups(kDevices, 0);

  auto produce = [&](int id) {
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
    if (sequence[id] != steps) g_errors.fetch_add(1);
    if (groups[id].load() != wide_groups[id]) g_errors.fetch_add(1);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kDevices; ++i) threads.emplace_back(produce, i);
  for (auto& t : threads) t.join();
  std::printf("%llu errors, %u threads\n", static_cast<unsigned long long>(g_errors.load()), scheduler_threads());
  std::fflush(stdout);
  std::_Exit(g_errors.load() ? 1 : 0);
}
