// Who carries transfers out: threads that read and write, and the kernel by itself where it can (platform/uring.hpp).
#pragma once
#include <mutex>

#include "disk/transfer.hpp"

namespace hcq {

enum class EngineChoice : uint8_t { automatic, threads, uring };
void engine_choose(EngineChoice);
bool engine_has_uring();  // tries, the first time

std::mutex& engine_lock();
void engine_start(Transfer*);  // any thread; doesn't block
// A thread that waits for a copy does a piece itself, of what the system holds in memory. False: there is none.
bool engine_help();
unsigned engine_threads();  // alive, for reports
void engine_after_fork();

// How fast each way is on a volume, in bytes a second; 0: not tried.
struct Speeds {
  double rate[kWays] = {};
};
Speeds& speeds_of(uint64_t volume);  // under the lock
Way best_way(const Speeds&);

}  // namespace hcq
