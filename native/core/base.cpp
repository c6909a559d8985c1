// Process generation: raised in a forked child, where every subsystem then gets fresh state.
#include "core/base.hpp"

#include <pthread.h>
#include <unistd.h>

namespace hcq {

uint32_t g_generation = 0;
int g_parent_pid = 0;

namespace {
constexpr int kMaxHandlers = 16;
void (*g_handlers[kMaxHandlers])();
int g_handler_count = 0;

void in_child() {
  ++g_generation;
  g_parent_pid = getppid();
  for (int i = 0; i < g_handler_count; ++i) g_handlers[i]();
}
}  // namespace

void install_fork_handler() {
  static bool done = pthread_atfork(nullptr, nullptr, in_child) == 0;
  (void)done;
}

void at_fork_in_child(void (*fn)()) {
  if (g_handler_count < kMaxHandlers) g_handlers[g_handler_count++] = fn;
}

}  // namespace hcq
