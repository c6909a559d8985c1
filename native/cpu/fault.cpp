// The signal handler. Everything in it is async-signal-safe: no allocation, no locks, no stdio.
#include "cpu/fault.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/device.hpp"
#include "core/lines.hpp"
#include "cpu/context.hpp"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

namespace hcq {

const Program g_copying;
__thread Running g_running __attribute__((tls_model("initial-exec"))) = {};

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction g_before[4];

int slot_of(int signal) { return static_cast<int>(std::find(kSignals, kSignals + 4, signal) - kSignals); }

// A line of bounded length, put together without stdio.
struct Line {
  char text[512];
  size_t size = 0;

  void add(const char* s) {
    for (; *s && size < sizeof text - 1; ++s) text[size++] = *s;
  }
  void add(uint64_t n, unsigned base) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = "0123456789abcdef"[n % base];
    while (n /= base);
    add(digits + at);
  }
  void add_triple(uint64_t x, uint64_t y, uint64_t z) {
    add("(");
    add(x, 10);
    add(", ");
    add(y, 10);
    add(", ");
    add(z, 10);
    add(")");
  }
  void write_out() {
    text[size++] = '\n';
    // A short or failed write can't be helped here.
    if (::write(STDERR_FILENO, text, size) < 0) return;
  }
};

const char* what_happened(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "segmentation fault";
    case SIGBUS:
      return "bus error";
    case SIGFPE:
      return "arithmetic fault";
    default:
      return "illegal instruction";
  }
}

// Which command of the queue runs. It and its queue stay until it is over, which it never will be.
void add_command(Line& line, const Queue* queue) {
  const uint8_t* packet = queue->running.load(std::memory_order_relaxed);
  if (!packet) return;
  uint64_t record = submit_record(queue, reinterpret_cast<const PacketHeader*>(packet));
  line.add("; command #");
  line.add(record_number(record), 10);
  line.add(" of ");
  line.add(queue->name.c_str());
  if (const char* place = line_text(record_line(record))) {
    line.add(", ");
    line.add(place);
  }
}

void report(int signal, const siginfo_t* info, const Running& running) {
  Line line;
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  bool has_address = info->si_code > 0;  // not when a process, or a handler before this one, sent the signal
  line.add("hcq: ");
  if (signal == SIGSEGV && has_address && context_is_guard(address)) {
    line.add("stack overflow");
  } else {
    line.add(what_happened(signal));
    if (has_address && (signal == SIGSEGV || signal == SIGBUS)) {
      line.add(" at address 0x");
      line.add(address, 16);
    }
  }
  if (running.program == &g_copying) {
    line.add(" in a copy");
  } else {
    line.add(" in kernel '");
    line.add(running.program->name.c_str());
    line.add("'");
  }
  const char* device = running.queue ? running.queue->device->name.c_str() : running.device;
  if (device) {
    line.add(" on ");
    line.add(device);
  }
  if (running.groups) {
    uint64_t x = running.groups[0], y = running.groups[1], z = running.groups[2], g = running.group;
    if (x && y) {
      line.add(", group ");
      line.add_triple(g % x, g / x % y, g / x / y);
      line.add(" of ");
      line.add_triple(x, y, z);
    }
  }
  if (running.queue) add_command(line, running.queue);
  line.write_out();
}

void handle(int signal, siginfo_t* info, void* context) {
  int error = errno;
  Running running = g_running;
  if (running.program) {
    g_running.program = nullptr;  // a fault while reporting, or in the handler before, is not reported again
    // relaxed: only one thread may get false. Groups on other threads tend to crash alike.
    static std::atomic<bool> reported{false};
    if (!reported.exchange(true, std::memory_order_relaxed)) {
      report(signal, info, running);
    } else {
      timespec moment = {0, 100'000'000};  // the process ends soon; not before the first one's line is out
      nanosleep(&moment, nullptr);
    }
  }
  const struct sigaction& before = g_before[slot_of(signal)];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    // Back in the kernel the instruction faults again, now with the system's own end of the process.
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by a process: nothing would fault again
  } else {
    before.sa_handler(signal);
  }
  errno = error;
}

pthread_key_t g_stack_key;  // frees a thread's alternate stack when the thread ends
bool g_has_stack_key = false;

size_t stack_size() {
  size_t least = getauxval(AT_MINSIGSTKSZ);  // grows with the vector registers; 0 where the kernel doesn't say
  return std::max<size_t>(32768, least + 16384);
}

void end_thread(void* stack) {
  stack_t off = {};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  munmap(stack, stack_size());
}

}  // namespace

void fault_install() {
  static std::atomic<bool> installed{false};
  // relaxed: whoever comes second needn't see the handlers, only not install them again
  if (installed.exchange(true, std::memory_order_relaxed)) return;
  g_has_stack_key = pthread_key_create(&g_stack_key, end_thread) == 0;
  for (int i = 0; i < 4; ++i) {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    // What was there before is known before the first fault can find the new one.
    sigaction(kSignals[i], nullptr, &g_before[i]);
    sigaction(kSignals[i], &action, nullptr);
  }
}

void fault_prepare_thread() {
  fault_install();  // copies come here before any program is loaded
  g_running.prepared = true;
  stack_t now = {};
  if (!g_has_stack_key) return;
  if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
  void* memory = mmap(nullptr, stack_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;  // faults are then handled on the thread's stack, if that has room
  stack_t ours = {};
  ours.ss_sp = memory;
  ours.ss_size = stack_size();
  if (sigaltstack(&ours, nullptr) != 0) {
    munmap(memory, stack_size());
    return;
  }
  pthread_setspecific(g_stack_key, memory);
}

}  // namespace hcq
