// Jobs: commands and host work spread over the pool's threads (scheduler.hpp).
#include <algorithm>

#include "core/device.hpp"
#include "core/scheduler_state.hpp"
#include "platform/platform.hpp"

namespace hcq {

namespace {
// The share, of `shares`, that this thread's processor begins with, the same in each job. Neighbours, which may share a
// cache, have the same or neighbouring ones.
unsigned own_share(unsigned shares) {
  Processor here = this_processor();
  return here.number * shares / here.count;
}
}  // namespace

Job* job_make(Queue* q) {
  Job* job = new Job;
  job->queue = q;
  return job;
}

void job_release(Job* job) {
  // acq_rel: the last one out frees what all have read
  if (job->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete job;
}

void job_open(Job* job, unsigned helpers) {
  uint64_t ranges = (job->total + job->chunk - 1) / job->chunk;
  job->left.store(ranges + 1, std::memory_order_relaxed);  // the list's lock publishes it
  if (helpers > ranges - 1) helpers = static_cast<unsigned>(ranges - 1);
  job->shares = std::min(helpers + 1, kShares);
  for (unsigned i = 0; i < job->shares; ++i) {
    job->share[i].next.store(ranges * i / job->shares, std::memory_order_relaxed);  // published as `left`
    job->share[i].end = ranges * (i + 1) / job->shares;
  }
  if (helpers == 0) return;
  State* s = g_state;
  std::vector<Sleeper*> sleepers;
  bool napping;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    s->jobs.push_back(job);
    s->wanted.push_back(helpers);
    s->job_count.store(static_cast<uint32_t>(s->jobs.size()), std::memory_order_relaxed);
    napping = s->scouting;
    unsigned awake = (napping ? 1 : 0) + s->lingering.load(std::memory_order_relaxed);
    for (unsigned n = awake; n < helpers; ++n) {
      unsigned threads = s->threads;
      Sleeper* sleeper = wake_candidate(s);
      if (sleeper) sleepers.push_back(sleeper);
      if (!sleeper && s->threads == threads) break;
    }
  }
  for (Sleeper* sleeper : sleepers) wake(sleeper);
  if (napping) urge();
}

bool job_run(Job* job, bool publisher) {
  uint64_t begin = now_ns(), finished = 0;
  unsigned own = job->shares > 1 ? own_share(job->shares) : 0;
  for (unsigned i = 0; i < job->shares; ++i) {
    Share& share = job->share[(own + i) % job->shares];
    // relaxed: the counter only divides the ranges; results are published by `left`
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      uint64_t range = share.next.fetch_add(1, std::memory_order_relaxed);
      if (range >= share.end) break;
      uint64_t first = range * job->chunk;
      job->run(*job, first, std::min(first + job->chunk, job->total));
      ++finished;
    }
  }
  if (publisher) {
    State* s = g_state;
    std::lock_guard<std::mutex> guard(s->lock);
    for (size_t i = 0; i < s->jobs.size(); ++i) {
      if (s->jobs[i] != job) continue;
      s->jobs[i] = s->jobs.back();
      s->jobs.pop_back();
      s->wanted[i] = s->wanted.back();
      s->wanted.pop_back();
      break;
    }
    s->job_count.store(static_cast<uint32_t>(s->jobs.size()), std::memory_order_relaxed);
    ++finished;
  }
  if (finished == 0) return false;
  job->busy_ns.fetch_add(now_ns() - begin, std::memory_order_relaxed);
  // acq_rel: whoever counts down to zero sees the memory that every other thread wrote
  return job->left.fetch_sub(finished, std::memory_order_acq_rel) == finished;
}

void parallel_for(uint64_t count, void (*fn)(void*, uint64_t), void* context) {
  unsigned threads = worker_limit();
  if (count < 2 || threads < 2) {
    for (uint64_t i = 0; i < count; ++i) fn(context, i);
    return;
  }
  Job* job = job_make(nullptr);
  job->each = fn;
  job->context = context;
  job->total = count;
  job->run = [](const Job& j, uint64_t first, uint64_t last) {
    for (uint64_t i = first; i < last; ++i) j.each(j.context, i);
  };
  job_open(job, threads - 1);
  if (!job_run(job, true)) {
    // What others still have in hand is short: look, and give them the core when they need it.
    // acquire: what they wrote is seen when the counter is
    for (unsigned n = 0; job->left.load(std::memory_order_acquire) != 0; ++n) n < 500 ? cpu_relax() : yield_thread();
  }
  job_release(job);
}

}  // namespace hcq
