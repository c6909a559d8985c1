// The process generation and the few things of base.hpp that are too long to inline.
#include "core/base.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace hcq {

uint32_t g_generation = 0;
int g_parent_pid = 0;

namespace {

int g_pid = 0;  // this process, as last seen

void enter_child() {
  g_parent_pid = g_pid;
  g_pid = static_cast<int>(getpid());
  ++g_generation;
}

}  // namespace

void install_fork_handler() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  g_pid = static_cast<int>(getpid());
  pthread_atfork(nullptr, nullptr, enter_child);
}

void yield_thread() { sched_yield(); }

}  // namespace hcq
