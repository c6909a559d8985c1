// What happens to the core's process-wide state in a forked child.
#pragma once

namespace hcq {
void prepare_for_fork();  // once, when the module is loaded
}  // namespace hcq
