// The Python threads that records are of. For record.cpp and record_host.cpp alone.
#pragma once

namespace hcq {
void lanes_flush();  // with the GIL: what threads have begun to write down is written
void lanes_after_fork();
}  // namespace hcq
