// The library's own threads: see threads.hpp.
#include "stream/threads.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <system_error>
#include <thread>

namespace cudacpu {

bool start_thread(const char* name, std::function<void()> body) {
  sigset_t most, before;
  sigfillset(&most);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&most, fault);
  pthread_sigmask(SIG_SETMASK, &most, &before);  // inherited by the new thread
  bool started = true;
  try {
    std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // its naps end when asked, not 50 us later
      body();
    }).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace cudacpu
