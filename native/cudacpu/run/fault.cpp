// Signal handlers, and what compiled code calls when it fails. The handler is async-signal-safe: no allocation, no
// locks, no stdio. It leaves by siglongjmp, which is sound because compiled code has no destructors and what it calls
// of ours holds no lock while it touches a kernel's memory.
#include "run/fault.hpp"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "run/block.hpp"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

namespace cudacpu {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct sigaction g_before[4];
std::mutex g_installing;

// Initial-exec: a signal handler may not have its thread-local memory allocated at first use.
__thread Running* t_running __attribute__((tls_model("initial-exec"))) = nullptr;
__thread int t_depth __attribute__((tls_model("initial-exec"))) = 0;  // handlers that handed a fault on

int slot_of(int signal) { return static_cast<int>(std::find(kSignals, kSignals + 4, signal) - kSignals); }

[[noreturn]] void leave(Running* running, uint32_t result, const Thread* thread, uint32_t line, const uint64_t* address,
                        int signal, const char* text = nullptr, uint64_t instruction = 0) {
  if (first_failure(running->grid)) {
    Failure& f = *running->failure;
    const Block& block = running->block->block();
    f.result = result;
    std::copy(block.ctaid, block.ctaid + 3, f.ctaid);
    if (thread) std::copy(thread->tid, thread->tid + 3, f.tid);
    f.has_thread = thread != nullptr;
    f.line = line;
    f.has_address = address != nullptr;
    if (address) f.address = *address;
    f.instruction = instruction;
    f.shared = block.shared;
    f.signal = signal;
    if (text) std::snprintf(f.text, sizeof f.text, "%s", text);
  }
  // A handler of somebody else may have called ours, with the signal held back until it returns, which it won't.
  if (signal) {
    sigset_t ours;
    sigemptyset(&ours);
    for (int each : kSignals) sigaddset(&ours, each);
    pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  }
  siglongjmp(running->escape, 1);
}

// The processor doesn't tell a misaligned access from one to an address that no process can have. The latter came from
// a register.
bool wild_register([[maybe_unused]] const void* context) {
#ifdef __x86_64__
  const auto* user = static_cast<const ucontext_t*>(context);
  for (int i = 0; i <= REG_RIP; ++i) {
    int64_t value = user->uc_mcontext.gregs[i];
    if (value >> 47 != 0 && value >> 47 != -1) return true;
  }
#endif
  return false;
}

uint64_t instruction_of([[maybe_unused]] const void* context) {
#ifdef __x86_64__
  return static_cast<uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

uint32_t result_of(int signal, const siginfo_t* info, const void* context) {
  if (signal == SIGBUS && info->si_code == BUS_ADRALN) return CUDA_ERROR_MISALIGNED_ADDRESS;
  // General protection: a vector access that is not aligned, or no address at all.
  if (signal == SIGSEGV && info->si_code == SI_KERNEL && !wild_register(context)) return CUDA_ERROR_MISALIGNED_ADDRESS;
  if (signal == SIGSEGV || signal == SIGBUS) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return signal == SIGILL ? CUDA_ERROR_ILLEGAL_INSTRUCTION : CUDA_ERROR_LAUNCH_FAILED;
}

void handle(int signal, siginfo_t* info, void* context) {
  Running* running = t_running;
  if (running) {
    // Handlers of others may have come before and sent the signal on: then the address is lost.
    bool has_address = (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0 && info->si_code != SI_KERNEL;
    auto address = reinterpret_cast<uint64_t>(info->si_addr);
    const Thread* thread = running->block->current();
    leave(running, result_of(signal, info, context), thread, thread ? thread->line : 0,
          has_address ? &address : nullptr, signal, nullptr, instruction_of(context));
  }
  const struct sigaction& before = g_before[slot_of(signal)];
  bool standard = !(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
  if (standard || t_depth > 0) {
    // Back in the kernel the instruction faults again, now with the system's own end of the process.
    struct sigaction end = {};
    end.sa_handler = SIG_DFL;
    sigaction(signal, &end, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by a process: nothing would fault again
    return;
  }
  ++t_depth;  // whoever comes next may call us as the one before
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  --t_depth;
}

size_t stack_size() {
  size_t least = getauxval(AT_MINSIGSTKSZ);  // grows with the vector registers; 0 where the kernel doesn't say
  return std::max<size_t>(32768, least + 16384);
}

// A thread's stack for handlers, given back when the thread ends.
struct SignalStack {
  void* memory = nullptr;

  void ensure() {
    stack_t now = {};
    if (memory || sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    void* at = mmap(nullptr, stack_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (at == MAP_FAILED) return;  // faults are then handled on the thread's stack, if that has room
    stack_t ours = {};
    ours.ss_sp = at;
    ours.ss_size = stack_size();
    if (sigaltstack(&ours, nullptr) != 0) {
      munmap(at, stack_size());
      return;
    }
    memory = at;
  }

  ~SignalStack() {
    if (!memory) return;
    stack_t off = {};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    munmap(memory, stack_size());
  }
};

thread_local SignalStack t_stack;

}  // namespace

void set_running(Running* running) {
  t_running = running;
  // For the handler, which runs on this thread: kernels must not be reordered with the store.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void fail_with(const Block* block, uint32_t linear, uint32_t result, uint32_t line, uint64_t address,
               const char* text) {
  Thread thread{};
  const uint32_t* ntid = block->grid->ntid;
  thread.tid[0] = linear % ntid[0];
  thread.tid[1] = linear / ntid[0] % ntid[1];
  thread.tid[2] = linear / ntid[0] / ntid[1];
  leave(t_running, result, &thread, line, address ? &address : nullptr, 0, text);
}

void catch_faults() {
  t_stack.ensure();
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) return;
  std::lock_guard<std::mutex> hold(g_installing);
  for (int i = 0; i < 4; ++i) {
    sigaction(kSignals[i], nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) continue;
    struct sigaction ours = {};
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // not deferred: leaving by longjmp restores no mask
    sigemptyset(&ours.sa_mask);
    g_before[i] = now;
    sigaction(kSignals[i], &ours, nullptr);
  }
}

extern "C" {

__attribute__((visibility("default"))) void hcq_cuda_fail(const Block* block, uint32_t linear, uint32_t result,
                                                          uint32_t line, uint64_t address) {
  fail_with(block, linear, result, line, address, nullptr);
}

// Before each access of a thread of checked code. `how` is an Access, and from bit 4 on a Space. Does not return where
// it found something.
__attribute__((visibility("default"))) void hcq_cuda_check(const Block*, uint32_t linear, uint64_t address,
                                                           uint32_t bytes, uint32_t how, uint32_t line) {
  t_running->block->check()->access(linear, address, bytes, static_cast<Access>(how & 15), static_cast<Space>(how >> 4),
                                    line);
}

__attribute__((visibility("default"))) void hcq_cuda_assert(const Block* block, uint32_t linear, const char* message,
                                                            const char* file, uint32_t line, const char* function) {
  const uint32_t *ntid = block->grid->ntid, *at = block->ctaid;
  // Not by stdio's streams: their lock would be held if one of the texts can't be read.
  char text[1024];
  int size = std::snprintf(
      text, sizeof text, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file, line,
      function, at[0], at[1], at[2], linear % ntid[0], linear / ntid[0] % ntid[1], linear / ntid[0] / ntid[1], message);
  size = std::min<int>(size, sizeof text - 1);
  if (::write(STDERR_FILENO, text, static_cast<size_t>(std::max(size, 0))) < 0) text[0] = 0;  // can't be helped here
  hcq_cuda_fail(block, linear, CUDA_ERROR_ASSERT, 0, 0);
}

__attribute__((visibility("default"))) void* hcq_cuda_frame(Thread* thread, uint64_t bytes) {
  void* at = t_running->block->frame(bytes);
  if (!at) leave(t_running, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, thread, 0, nullptr, 0);
  return at;
}

__attribute__((visibility("default"))) void* hcq_cuda_malloc(uint64_t bytes) {
  void* at = std::malloc(bytes);
  if (Check* check = t_running->block->check()) check->allocated(at, bytes);
  return at;
}

__attribute__((visibility("default"))) void hcq_cuda_free(void* at) {
  if (t_running->block->check()) Check::freed(at);
  std::free(at);
}

__attribute__((visibility("default"))) uint64_t hcq_cuda_clock() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // extern "C"

}  // namespace cudacpu
