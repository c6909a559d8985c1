// What queues stand at and who was to set a signal, in words, read from the packets themselves. For error messages.
#pragma once
#include <string>

#include "core/queue.hpp"

namespace hcq {

std::string describe_signal(const Signal* signal);
std::string describe_queue(Queue* queue);  // null: no queue is known
// The queued commands that are to set `signal`, on all queues, and what their queues stand at.
std::string describe_setters(const Signal* signal);

}  // namespace hcq
