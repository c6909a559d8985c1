// Devices, fault records and injected failures.
#include "core/device.hpp"

#include <time.h>
#include <unistd.h>

#include "core/interface.hpp"
#include "core/report.hpp"
#include "core/scheduler.hpp"

namespace hcq {

namespace {
struct Faults {
  std::mutex lock;
  std::vector<Fault> all;
};
Faults* g_faults = new Faults;
}  // namespace

void faults_after_fork() { g_faults = new Faults; }

uint64_t fault_record(Fault fault) {
  std::lock_guard<std::mutex> guard(g_faults->lock);
  g_faults->all.push_back(std::move(fault));
  return static_cast<uint64_t>(getpid()) << 32 | g_faults->all.size();
}

bool fault_lookup(uint64_t error, Fault* out) {
  std::lock_guard<std::mutex> guard(g_faults->lock);
  uint32_t index = static_cast<uint32_t>(error);
  if (error >> 32 != static_cast<uint64_t>(getpid()) || index == 0 || index > g_faults->all.size()) return false;
  *out = g_faults->all[index - 1];
  return true;
}

Device* device_create(std::string name) {
  auto* d = new Device;
  d->name = std::move(name);
  return d;
}

void device_retain(Device* d) { d->refs.fetch_add(1, std::memory_order_relaxed); }

void device_release(Device* d) {
  if (d->generation != g_generation) return;
  // acq_rel: the last holder sees the others' writes before freeing
  if (d->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (Queue* q = d->compute.load(std::memory_order_acquire)) queue_close(q);
  if (Queue* q = d->copy.load(std::memory_order_acquire)) queue_close(q);
  for (Queue* q : d->lanes) queue_close(q);
  if (d->interface) d->interface->leave(d->context);
  delete d;
}

Queue* device_queue(Device* d, QueueKind kind) {
  auto& slot = kind == QueueKind::compute ? d->compute : d->copy;
  Queue* q = slot.load(std::memory_order_acquire);
  if (q) return q;
  std::lock_guard<std::mutex> guard(d->make_lock);
  q = slot.load(std::memory_order_relaxed);
  if (!q) {
    q = queue_create(d, kind, d->name + (kind == QueueKind::compute ? " compute queue" : " copy queue"));
    slot.store(q, std::memory_order_release);
  }
  return q;
}

Queue* device_stream(Device* d) {
  std::lock_guard<std::mutex> guard(d->make_lock);
  Queue* q = queue_create(d, QueueKind::compute, d->name + " stream " + std::to_string(d->streams.size() + 1));
  d->streams.push_back(q);
  queue_retain(q);
  return q;
}

Queue* device_lane(Device* d, size_t i) {
  if (!i) return device_queue(d, QueueKind::compute);
  std::lock_guard<std::mutex> guard(d->make_lock);
  while (d->lanes.size() < i)
    d->lanes.push_back(
        queue_create(d, QueueKind::compute, d->name + " graph lane " + std::to_string(d->lanes.size() + 1)));
  return d->lanes[i - 1];
}

void device_lose(Device* d, uint64_t error, Queue* mine) {
  if (d->fault.load(std::memory_order_acquire)) return;
  {
    std::string report = report_queues(d, mine);
    std::lock_guard<std::mutex> guard(g_faults->lock);
    uint32_t index = static_cast<uint32_t>(error);  // of a fault that was recorded here
    if (index && index <= g_faults->all.size()) g_faults->all[index - 1].report = std::move(report);
  }
  uint64_t none = 0;
  // release: the fault's record was written before; a later failure doesn't replace the first
  if (!d->fault.compare_exchange_strong(none, error, std::memory_order_acq_rel)) return;
  if (Signal* s = d->timeline.signal)
    signal_fail(*s->memory, error, s->memory->value.load(std::memory_order_acquire) + 1, UINT64_MAX);
  resume_satisfied();  // entries of queues of a lost device count as satisfied: they wake up and drop their packets
}

uint64_t injected(Device* d, InjectWhat what, const char* command) {
  Injection fired{};
  bool fires = false;
  d->inject_lock.lock();
  for (size_t i = 0; i < d->armed.size(); ++i) {
    if (d->armed[i].what != what || --d->armed[i].countdown != 0) continue;
    fired = d->armed[i];
    fires = true;
    d->armed.erase(d->armed.begin() + static_cast<std::ptrdiff_t>(i));
    d->injections.fetch_sub(1, std::memory_order_relaxed);
    break;
  }
  d->inject_lock.unlock();
  if (!fires) return 0;
  if (fired.delay_ns) {
    timespec t{static_cast<time_t>(fired.delay_ns / 1000000000ull), static_cast<long>(fired.delay_ns % 1000000000ull)};
    while (nanosleep(&t, &t) != 0) {
    }
  }
  return fired.token ? fault_record(Fault{d->name, command, "injected failure", fired.token, 0, ""}) : 0;
}

}  // namespace hcq
