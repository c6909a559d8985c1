// Helpers: host threads that lend a hand with a grid. Made at first use, kept, and forgotten in a forked child.
#pragma once
#include <cstdint>

namespace cudacpu {

// Something that several host threads can do a part of.
class Shared {
 public:
  virtual void help() = 0;            // does parts until none is left; any thread
  virtual bool has_more() const = 0;  // cheap; a guess
  uint32_t most_helpers = 0;

 protected:
  ~Shared() = default;

 private:
  friend class Crew;
  uint32_t helping_ = 0, came_ = 0;  // under the crew's lock
};

// Threads that may work at once, the caller included: the cores this process may use, or HCQ_CPU_THREADS.
uint32_t cores();

void call_crew(Shared& work);     // returns at once; `work` must stay until dismiss_crew has returned
void dismiss_crew(Shared& work);  // waits for those that help
}  // namespace cudacpu
