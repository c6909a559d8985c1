// In a forked child every subsystem gets fresh state; the inherited one is leaked, since its locks may be held by
// threads that do not exist there.
#include "core/lifecycle.hpp"

#include "core/base.hpp"
#include "core/device.hpp"
#include "core/lines.hpp"
#include "core/names.hpp"
#include "core/queue_list.hpp"
#include "core/record.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "core/signal.hpp"

namespace hcq {

void prepare_for_fork() {
  static bool done = false;
  if (done) return;
  done = true;
  at_fork_in_child(queues_after_fork);
  at_fork_in_child(signals_after_fork);
  at_fork_in_child(retire_after_fork);
  at_fork_in_child(faults_after_fork);
  at_fork_in_child(names_after_fork);
  at_fork_in_child(lines_after_fork);
  at_fork_in_child(records_after_fork);
  at_fork_in_child(scheduler_after_fork);
  install_fork_handler();
}

}  // namespace hcq
