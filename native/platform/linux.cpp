// Linux: futexes, processor counts, thread attributes. Facts: futex(2), prctl(2), sched_getaffinity(2), cgroups(7).
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "core/base.hpp"
#include "platform/platform.hpp"

namespace hcq {

bool futex_wait(std::atomic<uint32_t>* word, uint32_t expected, uint64_t timeout_ns, bool shared) {
  timespec t{static_cast<time_t>(timeout_ns / 1000000000ull), static_cast<long>(timeout_ns % 1000000000ull)};
  long r = syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, expected,
                   timeout_ns == UINT64_MAX ? nullptr : &t, nullptr, 0);
  return r == 0 || errno == EAGAIN;
}

void futex_wake(std::atomic<uint32_t>* word, int count, bool shared) {
  syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

bool futex_wait_any(const FutexWord* words, unsigned count, uint64_t timeout_ns) {
  // futex_waitv(2), Linux 5.16: struct futex_waitv {u64 val; u64 uaddr; u32 flags; u32 reserved}, an absolute time-out.
  struct Waiter {
    uint64_t value, address;
    uint32_t flags, reserved;
  };
  constexpr long kSyscall = 449;  // the same number on all architectures
  constexpr uint32_t kSize32 = 2, kPrivate = 128;
  static std::atomic<bool> missing{false};
  if (missing.load(std::memory_order_relaxed) || count > kMostFutexWords) return false;
  Waiter waiters[kMostFutexWords];
  for (unsigned i = 0; i < count; ++i)
    waiters[i] = {words[i].expected, reinterpret_cast<uint64_t>(words[i].word),
                  kSize32 | (words[i].shared ? 0 : kPrivate), 0};
  uint64_t until = now_ns() + timeout_ns;
  timespec t{static_cast<time_t>(until / 1000000000ull), static_cast<long>(until % 1000000000ull)};
  if (syscall(kSyscall, waiters, count, 0, &t, CLOCK_MONOTONIC) >= 0) return true;
  if (errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return true;
  missing.store(true, std::memory_order_relaxed);  // ENOSYS, or a sandbox that refuses it
  return false;
}

// cgroup v2 (cpu.max: "quota period" or "max period") and v1 (cpu.cfs_quota_us, -1 is none).
static double cgroup_quota() {
  double quota = 0, period = 0;
  if (FILE* f = fopen("/sys/fs/cgroup/cpu.max", "re")) {
    int n = fscanf(f, "%lf %lf", &quota, &period);
    fclose(f);
    if (n == 2 && quota > 0 && period > 0) return quota / period;
    return 0;
  }
  FILE* q = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
  FILE* p = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
  bool ok = q && p && fscanf(q, "%lf", &quota) == 1 && fscanf(p, "%lf", &period) == 1;
  if (q) fclose(q);
  if (p) fclose(p);
  return ok && quota > 0 && period > 0 ? quota / period : 0;
}

unsigned usable_cpus() {
  cpu_set_t set;
  unsigned n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    n = static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  else
    n = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  double quota = cgroup_quota();
  if (quota > 0) n = std::min(n, static_cast<unsigned>(std::max(1.0, std::ceil(quota))));
  return n;
}

Processor this_processor() {
  struct Numbers {
    uint16_t of[CPU_SETSIZE];  // a processor's number among those in the mask
    unsigned count = 0;
    Numbers() {
      cpu_set_t set;
      bool known = sched_getaffinity(0, sizeof set, &set) == 0;
      for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        of[cpu] = static_cast<uint16_t>(count);
        if (known && CPU_ISSET(cpu, &set)) ++count;
      }
      if (!count) count = 1;
    }
  };
  static const Numbers numbers;
  int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= CPU_SETSIZE) return {0, numbers.count};
  return {std::min<unsigned>(numbers.of[cpu], numbers.count - 1), numbers.count};
}

namespace {
// A thread takes over how the one that starts it is scheduled, which may be waiting for its turn just now: threads of
// ours are to be scheduled as the process is.
void run_as_the_process(const std::function<void()>& body) {
  if (sched_getscheduler(getpid()) != SCHED_BATCH) set_preempting(thread_number(), true);
  body();
}
}  // namespace

bool start_thread(void (*fn)()) {
  std::thread thread;
  if (!start_thread(&thread, fn)) return false;
  thread.detach();
  return true;
}

bool start_thread(std::thread* out, std::function<void()> body) {
  sigset_t most, before;
  sigfillset(&most);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&most, fault);
  pthread_sigmask(SIG_SETMASK, &most, &before);  // inherited by the new thread
  bool started = true;
  try {
    *out = std::thread(run_as_the_process, std::move(body));
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void set_thread_name(const char* name) { pthread_setname_np(pthread_self(), name); }
uint64_t thread_number() { return static_cast<uint64_t>(syscall(SYS_gettid)); }
void set_precise_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }
void yield_thread() { sched_yield(); }

void set_preempting(uint64_t thread, bool preempting) {
  auto id = static_cast<pid_t>(thread);
  int from = preempting ? SCHED_BATCH : SCHED_OTHER, to = preempting ? SCHED_OTHER : SCHED_BATCH;
  if (sched_getscheduler(id) != from) return;
  sched_param none{};
  sched_setscheduler(id, to, &none);  // refused in some sandbox: then it stays as it was
}

}  // namespace hcq
