// A launch's part in recording (record.hpp) where it costs least: launches that follow each other are one record, and
// of most of them nothing is written but their number (record_host.cpp).
#pragma once
#include "core/queue.hpp"
#include "core/record.hpp"

namespace hcq {

// Launches of a thread to one queue, since the last that weren't.
struct LaunchBurst {
  uint64_t session = 0, queue = 0;
  uint32_t left = 0;   // how many more are counted without a look at the clock
  uint64_t count = 0;  // those `left` are in it already
  uint64_t submit = 0, start = 0, end = 0;
};
extern __thread LaunchBurst* t_launch_burst __attribute__((tls_model("initial-exec")));  // null before the first

// Before a launch is published, with the GIL; true: record_launched is to follow.
inline bool record_launch(uint64_t session, const Queue* q) {
  LaunchBurst* b = t_launch_burst;
  if (__builtin_expect(!b || !b->left || b->queue != q->id || b->session != session, 0))
    return record_launch_seen(session, q);
  --b->left;
  return false;
}

}  // namespace hcq
