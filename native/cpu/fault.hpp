// Naming the kernel that crashed the process. Each thread says what it runs by plain stores to thread-local variables;
// a handler of SIGSEGV, SIGBUS, SIGFPE and SIGILL reads them, writes one line to standard error, and hands over to
// whoever handled the signal before, so that the process ends as it would have.
#pragma once
#include <atomic>

#include "core/program.hpp"

namespace hcq {

struct Queue;

struct Running {
  const Program* program;  // null while no kernel runs: then the handler says nothing
  const Queue* queue;      // whose command this thread runs; may be null
  const char* device;      // without a queue: its name, for the message; may be null
  const uint32_t* groups;  // group counts of the launch; null for functions without a grid
  uint64_t group;          // linear index
  bool prepared;           // the thread has an alternate stack for signals
};

// Initial-exec: a signal handler may not have its thread-local memory allocated at first use. __thread: no constructor
// to look for at each access.
extern __thread Running g_running __attribute__((tls_model("initial-exec")));

// Says of which queue, or else on which device, this thread runs what comes next. A queue stays while its command runs;
// `name` must stay valid until it is replaced.
inline void set_running_queue(const Queue* q) { g_running.queue = q; }
inline void set_running_device(const char* name) {
  g_running.queue = nullptr;
  g_running.device = name;
}

extern const Program g_copying;  // stands for a copy command in g_running

void fault_install();         // once, when the first program is loaded; further calls do nothing
void fault_prepare_thread();  // gives the thread an alternate signal stack, unless it has one

// While one lives, the thread is in `program`.
class RunningProgram {
 public:
  RunningProgram(const Program* program, const uint32_t* groups) {
    if (__builtin_expect(!g_running.prepared, 0)) fault_prepare_thread();
    g_running.groups = groups;
    g_running.program = program;
    // For the handler, which runs on this thread: a memmove, unlike a kernel, is not opaque to the compiler, which
    // would drop these stores.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~RunningProgram() {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // not before the copy or kernel is over
    g_running.program = nullptr;
  }
  RunningProgram(const RunningProgram&) = delete;
  void at_group(uint64_t linear) { g_running.group = linear; }
};

}  // namespace hcq
