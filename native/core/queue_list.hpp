// All open queues of the process, for stamps, the drain at exit and reports.
#pragma once
#include <vector>

#include "core/queue.hpp"

namespace hcq {

struct QueueList {
  SpinLock lock;
  std::vector<Queue*> all;
};
extern QueueList* g_queues;

void queues_after_fork();
void queue_give_segment(Queue* q, Segment* segment);  // the consumer is past it

}  // namespace hcq
