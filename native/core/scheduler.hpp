// The threads of the command processor: ready queues, jobs of many groups, blocked queues and awaiting tasks.
// docs/design/processor.md explains the protocol.
#pragma once
#include <vector>

#include "core/queue.hpp"

namespace hcq {

// Neighbouring ranges of a job.
struct alignas(64) Share {
  std::atomic<uint64_t> next{0};  // first range not taken; at the end or past it: none is left
  uint64_t end = 0;
};
constexpr unsigned kShares = 8;

// A command spread over threads: ranges of 0..total, in as many shares as threads. A thread takes its own processor's
// share first: there it finds in its caches what the same or the last command left. Then it helps with the others.
// `run` never touches Python.
struct Job {
  std::atomic<uint32_t> refs{1};     // the queue's, and one for each pool thread inside
  std::atomic<uint64_t> left{0};     // ranges to finish, plus one for the thread that published it
  std::atomic<uint64_t> busy_ns{0};  // time summed over the threads
  uint64_t total = 0, chunk = 1;
  unsigned shares = 1;
  Share share[kShares];
  void (*run)(const Job&, uint64_t first, uint64_t last) = nullptr;
  Queue* queue = nullptr;  // null: nobody's queue goes on when it is done
  const Program* program = nullptr;
  const uint8_t* arguments = nullptr;
  uint32_t groups[3] = {}, items[3] = {};
  uint64_t destination = 0, source = 0, bytes = 0;
  void (*each)(void* context, uint64_t i) = nullptr;  // of parallel_for
  void* context = nullptr;
};

unsigned worker_limit();  // threads that share one job (HCQ_CPU_THREADS)
void set_worker_limit(unsigned);

void doorbell(Queue* q);  // after publishing: the queue will be stepped soon; no system call while a thread is awake
void urge();              // someone is about to sleep: let a thread look now, not at the end of its nap
void block(Queue* q, Signal* signal, uint64_t value);  // under step_lock: adds an entry to the blocked list
void unblock(Queue* q);                                // under step_lock: removes it
uint32_t blocked_entries();                            // relaxed; exact only after a full fence
void resume_satisfied();                               // called after a signal changed
void watch_blocked();                                  // a thread looks at signals that other processes may set
// What a queue is blocked on; false when it isn't.
struct BlockedAt {
  uint64_t signal, value, wanted;  // id, value now, value it waits for
};
bool blocked_at(Queue* q, BlockedAt* out);
Queue* blocked_setter(Queue* q);            // the queue that is to set what q is blocked on, with a reference, or null
Job* job_make(Queue* q);                    // not yet open
bool job_run(Job* job, bool publisher);     // takes ranges; true when this thread finished the last one
void job_open(Job* job, unsigned helpers);  // lets `helpers` pool threads take ranges
void job_release(Job* job);

// Calls fn(context, i) for i in 0..count-1 on this thread and on pool threads; returns when all calls have. fn is
// short, doesn't block and doesn't touch Python. Any thread, without the GIL when that takes long; not from inside a
// job.
void parallel_for(uint64_t count, void (*fn)(void* context, uint64_t i), void* context);

// Tasks that await a signal: when reached (or failed), `token` is queued and the descriptor is written.
void async_register(Signal* signal, uint64_t value, int descriptor, uint64_t token);
void async_cancel(int descriptor, uint64_t token);
std::vector<uint64_t> async_take(int descriptor);

unsigned scheduler_threads();  // alive now, for reports
void scheduler_after_fork();   // in the child: fresh state, the old one is leaked

}  // namespace hcq
