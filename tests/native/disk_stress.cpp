// Copies from and to files by many queues at a time, without Python: built with the thread sanitizer by
// test_native_stress.py. Each copy is looked at; engines change, calls are short or interrupted, files are cut.
#include <Python.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/device.hpp"
#include "core/lifecycle.hpp"
#include "core/program.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "cpu/fault.hpp"
#include "disk/engine.hpp"

extern "C" void _Py_Dealloc(PyObject*) {}  // retire.cpp can drop Python objects; here there are none

namespace hcq {
__thread Running g_running __attribute__((tls_model("initial-exec")));  // no kernels of native/cpu here
const Program g_copying;
void fault_prepare_thread() { g_running.prepared = true; }
void run_groups(const Program&, const uint8_t*, const uint32_t[3], const uint32_t[3], uint64_t, uint64_t) {}
}  // namespace hcq

using namespace hcq;

namespace {
constexpr uint64_t kBytes = 6 << 20;
std::atomic<uint64_t> g_errors{0};

uint8_t byte_at(uint64_t i) { return static_cast<uint8_t>(i * 2654435761u >> 13); }

int make_file(const char* folder, const char* name, uint64_t bytes, std::string* path) {
  *path = std::string(folder) + "/" + name;
  int d = open(path->c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  std::vector<uint8_t> content(bytes);
  for (uint64_t i = 0; i < bytes; ++i) content[i] = byte_at(i);
  if (write(d, content.data(), bytes) != static_cast<ssize_t>(bytes)) g_errors.fetch_add(1);
  fsync(d);
  return d;
}

// Queues a copy and waits for it, mostly by stepping, as Python threads do. Whether it went well.
bool copy(Device* d, Queue* q, uint64_t dest, uint64_t source, uint64_t bytes, bool steps) {
  Timeline* t = &d->timeline;
  for (;;) {
    t->lock.lock();
    q->produce.lock();
    if (queue_room(q, 1, 1) == Room::yes) break;
    q->produce.unlock();
    t->lock.unlock();
    step(q, true, now_ns() + 20000);
  }
  auto* p = reinterpret_cast<CopyPacket*>(queue_write(q, 1));
  uint64_t value = t->next.fetch_add(1);
  p->header = {PacketType::copy, 1, kEndOfSubmit | kWaitPrevious | kCompletes, ++q->records};
  p->destination = dest;
  p->source = source;
  p->bytes = bytes;
  p->signal = t->signal;
  p->value = value;
  p->timing = nullptr;
  queue_publish(q);
  q->produce.unlock();
  t->lock.unlock();
  doorbell(q);
  while (t->signal->memory->value.load(std::memory_order_acquire) < value) {
    if (steps)
      step(q, true, now_ns() + 20000);
    else if (!engine_help())
      std::this_thread::yield();
  }
  return signal_reached(*t->signal->memory, value) == Reached::yes;
}
}  // namespace

int main(int argc, char** argv) {
  unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 200;
  const char* folder = argc > 2 ? argv[2] : ".";
  prepare_for_fork();
  set_worker_limit(3);
  g_start_file_copy = start_file_copy;
  std::string path;
  int shared = make_file(folder, "shared", kBytes, &path);
  File* file = file_open(dup(shared), path, false);
  std::atomic<bool> over{false};
  std::thread meddler([&] {
    std::mt19937 random(99);
    while (!over.load()) {
      engine_choose(random() % 2 ? EngineChoice::threads : EngineChoice::automatic);
      if (random() % 2) posix_fadvise(shared, 0, 0, POSIX_FADV_DONTNEED);
      if (random() % 4 == 0) disturb(random() % 20, 1 + random() % 100000, random() % 3 ? 0 : EINTR);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    disturb(0, UINT64_MAX, 0);
  });
  auto work = [&](int id) {
    Device* d = device_create("D" + std::to_string(id));
    d->timeline.signal = signal_create(0);
    Queue* q = device_queue(d, QueueKind::copy);
    std::mt19937 random(static_cast<unsigned>(id) + 1);
    std::string own_path;
    int own = make_file(folder, ("own" + std::to_string(id)).c_str(), kBytes, &own_path);
    File* mine = file_open(own, own_path, true);
    std::vector<uint8_t> memory(kBytes);
    for (unsigned r = 0; r < rounds; ++r) {
      uint64_t claim = file_claim(file, kBytes + 1000), claim_mine = file_claim(mine, kBytes);
      uint64_t bytes = 1 + random() % (random() % 2 ? 5000 : kBytes - 1), at = random() % (kBytes - bytes + 1);
      uint64_t to = random() % (kBytes - bytes + 1);
      bool steps = random() % 2;
      auto address = reinterpret_cast<uint64_t>(memory.data());
      switch (random() % 4) {
        case 0:  // past the end
          if (copy(d, q, address, claim + kBytes - bytes + 1, bytes, steps)) g_errors.fetch_add(1);
          break;
        case 1:  // to the own file, and back
          if (!copy(d, q, claim_mine + to, claim + at, bytes, steps)) g_errors.fetch_add(1);
          if (!copy(d, q, address + to, claim_mine + to, bytes, steps)) g_errors.fetch_add(1);
          for (uint64_t i = 0; i < bytes; i += 97)
            if (memory[to + i] != byte_at(at + i)) g_errors.fetch_add(1);
          break;
        default:
          std::memset(memory.data() + to, 0, bytes);
          if (!copy(d, q, address + to, claim + at, bytes, steps)) g_errors.fetch_add(1);
          for (uint64_t i = 0; i < bytes; i += 97)
            if (memory[to + i] != byte_at(at + i)) g_errors.fetch_add(1);
      }
      file_unclaim(file, claim, kBytes + 1000);
      file_unclaim(mine, claim_mine, kBytes);
      run_retired();
    }
    file_release(mine);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (auto& t : threads) t.join();
  over.store(true);
  meddler.join();
  run_retired();
  file_release(file);
  if (files_open() != 0) g_errors.fetch_add(1);
  std::printf("%llu errors, %u threads\n", static_cast<unsigned long long>(g_errors.load()), engine_threads());
  std::fflush(stdout);
  std::_Exit(g_errors.load() ? 1 : 0);
}
