// What all queues of the process are at, in some lines each: what finished last, what runs, what waits for what and who
// was to set it, what comes next. Built once, for every error about work that doesn't end or ended badly.
#pragma once
#include <string>

#include "core/queue.hpp"

namespace hcq {

// The queues of `first` (or null) come first, then those with work, then idle ones. `mine`: the queue whose step lock
// the caller holds. Any thread, with or without the GIL; empty where no queue ever had work.
std::string report_queues(const Device* first, const Queue* mine);

}  // namespace hcq
