// Pool threads, the ready list and blocked queues (docs/design/processor.md).
#include "core/scheduler.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/device.hpp"
#include "core/scheduler_state.hpp"
#include "platform/platform.hpp"

namespace hcq {

State* g_state = new State;

namespace {
std::atomic<unsigned> g_limit{0};
constexpr uint64_t kLeastLinger = 500;      // ns a thread lingers where that has brought nothing lately
constexpr uint64_t kGiveWay = 2000;         // ns a waiting thread that ran the last commands has, to run these
constexpr uint64_t kGather = 2000;          // ns until it looks again, where it found few commands at each look
constexpr uint64_t kSpin = 10000;           // ns the scout spins before it naps
constexpr uint64_t kNap = 50000;            // ns of one nap while launches are recent
constexpr uint64_t kSlowNap = 120000;       // the same while lingering brings nothing; work starts within 200 us
constexpr uint64_t kAwake = 5000000;        // ns after the last work until the scout sleeps for good
constexpr uint64_t kBlockedNap = 10000000;  // longest nap while a queue waits for a signal that others may set

bool satisfied(const Waiting& w) {
  if (w.own) return w.signal->memory->value.load(std::memory_order_acquire) >= w.value;
  return signal_reached(*w.signal->memory, w.value) != Reached::no;
}

void thread_main();

// A thread that wakes for a launch now and then would take the program's own core each time, where no other is free: it
// waits for its turn instead, unless somebody waits for what it is to do.
void set_patient(Sleeper* sleeper, bool patient) {
  if (sleeper->patient.load(std::memory_order_relaxed) == patient) return;  // a stale look costs one turn
  sleeper->patience.lock();
  if (sleeper->patient.load(std::memory_order_relaxed) != patient) {
    set_preempting(sleeper->thread, !patient);
    sleeper->patient.store(patient, std::memory_order_relaxed);
  }
  sleeper->patience.unlock();
}
}  // namespace

// Under the lock: one more thread to run things, if that is needed and can be had.
Sleeper* wake_candidate(State* s) {
  // Who is neither asleep nor busy takes the lock next and finds what was put in the lists.
  if (s->threads > s->sleepers.size() + s->busy.load(std::memory_order_relaxed)) return nullptr;
  if (!s->sleepers.empty()) {
    Sleeper* sleeper = s->sleepers.back();
    s->sleepers.pop_back();
    return sleeper;
  }
  unsigned most = worker_limit() + 4 > 8 ? worker_limit() + 4 : 8;
  if (s->threads < most) {
    if (start_thread(thread_main)) ++s->threads;  // else the others will get to it
  }
  return nullptr;
}

void wake(Sleeper* sleeper) {
  if (!sleeper) return;
  sleeper->word.store(1, std::memory_order_release);  // what was put in the lists is seen by the one that wakes
  futex_wake(&sleeper->word, 1, false);
}

namespace {
void push_ready(Queue* q) {
  State* s = g_state;
  queue_retain(q);
  Sleeper* sleeper = nullptr;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    s->ready.push_back(q);
    s->ready_count.store(static_cast<uint32_t>(s->ready.size()), std::memory_order_relaxed);
    // full fence: the count before the look at `lingering`; who stops lingering does it the other way round
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!s->scouting && s->lingering.load(std::memory_order_relaxed) == 0) sleeper = wake_candidate(s);
  }
  wake(sleeper);
  if (s->drowsy.load(std::memory_order_relaxed)) urge();
}

// Where a thread that waits ran the last commands itself, it is about to run these, faster than a hand-over: it gets
// the time to come. True when it came. All relaxed: a wrong guess costs a moment.
bool give_way(Queue* q) {
  uint32_t helped = q->helped.load(std::memory_order_relaxed);
  if (helped == q->helped_before) return false;
  q->helped_before = helped;
  uint64_t until = now_ns() + kGiveWay;
  for (unsigned n = 1;; ++n) {
    if (q->helped.load(std::memory_order_relaxed) != helped || q->step_lock.held()) return true;
    cpu_relax();
    if ((n & 7) == 0 && now_ns() >= until) return false;
  }
}

// Steps a queue of the ready list until there is nothing to do, lingering a little for what comes next.
void run_queue(State* s, Queue* q) {
  q->state.store(kRunning, std::memory_order_relaxed);  // the list's lock ordered us after the push
  while (!give_way(q)) {
    uint64_t completed = q->completed.load(std::memory_order_relaxed);
    StepResult r = step(q, false, UINT64_MAX);
    if (r != StepResult::empty) break;
    uint32_t helped = q->helped.load(std::memory_order_relaxed);
    uint64_t position = q->read_position;
    bool more = false;
    // Who launches now and then, with work of its own between, needs the core that spinning would take; as does who
    // shares this core: then there is much at each look, and never anything while we spin.
    uint64_t ran = q->completed.load(std::memory_order_relaxed) - completed;
    uint64_t now = now_ns(), before = s->empty_since.exchange(now, std::memory_order_relaxed);
    if (ran) s->rare.store(now - before >= ran * kLinger, std::memory_order_relaxed);
    uint64_t linger = s->linger.load(std::memory_order_relaxed);
    s->lingering.fetch_add(1, std::memory_order_relaxed);
    uint64_t until = now + linger;
    for (unsigned n = 0;; ++n) {
      if (q->tail.load(std::memory_order_acquire) != position) {
        more = true;
        s->linger.store(kLinger, std::memory_order_relaxed);
        break;
      }
      if (s->ready_count.load(std::memory_order_relaxed) || s->job_count.load(std::memory_order_relaxed)) break;
      cpu_relax();
      if ((n & 7) == 7 && now_ns() >= until) {
        s->linger.store(std::max(linger / 2, kLeastLinger), std::memory_order_relaxed);
        break;
      }
    }
    // Few at a time: the launching thread and this one pass the same cache lines to and fro, and both are slower for
    // it. Left alone for a moment it writes many.
    while (more && ran && now_ns() - now < kGather) cpu_relax();
    s->lingering.fetch_sub(1, std::memory_order_seq_cst);
    // What was pushed while we lingered woke nobody: if we go on with our own queue, another thread must take it.
    if (more && s->ready_count.load(std::memory_order_seq_cst)) {
      Sleeper* other = nullptr;
      {
        std::lock_guard<std::mutex> guard(s->lock);
        if (!s->ready.empty() && !s->scouting) other = wake_candidate(s);
      }
      wake(other);
    }
    // A waiting thread that runs the commands itself is faster than a hand-over: leave the queue to it.
    if (q->helped.load(std::memory_order_relaxed) != helped) break;
    if (!more) break;
  }
  s->busy.fetch_sub(1, std::memory_order_relaxed);
  q->state.store(kIdle, std::memory_order_seq_cst);
  leave(q);
  queue_release(q);
}

// Under the lock: the next thing to do.
bool take(State* s, Job** job, Queue** queue) {
  *job = nullptr;
  *queue = nullptr;
  if (!s->jobs.empty()) {
    *job = s->jobs.back();
    (*job)->refs.fetch_add(1, std::memory_order_relaxed);
    if (--s->wanted.back() == 0) {
      s->jobs.pop_back();
      s->wanted.pop_back();
      s->job_count.store(static_cast<uint32_t>(s->jobs.size()), std::memory_order_relaxed);
    }
    return true;
  }
  if (!s->ready.empty()) {
    *queue = s->ready.front();
    s->ready.pop_front();
    s->ready_count.store(static_cast<uint32_t>(s->ready.size()), std::memory_order_relaxed);
    return true;
  }
  return false;
}

// The scout: until there is something to take. Returns false when it was time to sleep for good.
bool scout(State* s, Sleeper* self) {
  auto work = [s] {
    return s->ready_count.load(std::memory_order_relaxed) || s->job_count.load(std::memory_order_relaxed);
  };
  uint64_t begin = now_ns(), spin = std::min(kSpin, s->linger.load(std::memory_order_relaxed));
  for (unsigned n = 0;; ++n) {
    if (work()) return true;
    cpu_relax();
    if ((n & 7) == 7 && now_ns() - begin >= spin) break;
  }
  uint64_t nap = spin > kLeastLinger ? kNap : kSlowNap;
  set_patient(self, nap == kSlowNap && s->rare.load(std::memory_order_relaxed));
  for (;;) {
    uint32_t word = s->scout_word.load(std::memory_order_acquire);
    if (work()) return true;
    futex_wait(&s->scout_word, word, nap, false);
    if (work()) return true;
    if (s->waiting_count.load(std::memory_order_relaxed)) resume_satisfied();
    if (work()) return true;
    if (now_ns() - begin < kAwake) continue;
    if (!s->waiting_count.load(std::memory_order_relaxed)) return false;
    set_patient(self, false);
    s->drowsy.store(true, std::memory_order_seq_cst);  // before the next look at the lists, so no push is missed
    if (work()) return true;
    if (sleep_at_signals(s)) continue;
    // Without futex_waitv: another process may set what a queue waits for, so keep looking, ever less often.
    if (nap < kBlockedNap) nap *= 2;
  }
}

void thread_main() {
  State* s = g_state;
  set_thread_name("hcq");
  set_precise_timers();
  Sleeper self;
  self.thread = thread_number();
  std::unique_lock<std::mutex> lock(s->lock);
  for (;;) {
    Job* job;
    Queue* queue;
    if (take(s, &job, &queue)) {
      s->busy.fetch_add(1, std::memory_order_relaxed);
      Sleeper* other = nullptr;
      if ((!s->ready.empty() || !s->jobs.empty()) && !s->scouting) other = wake_candidate(s);
      lock.unlock();
      wake(other);
      if (job) {
        bool last = job_run(job, false);
        s->busy.fetch_sub(1, std::memory_order_relaxed);
        if (last && job->queue) finish_job(job->queue);
        job_release(job);
      } else {
        run_queue(s, queue);
      }
      lock.lock();
      continue;
    }
    if (!s->scouting) {
      s->scouting = true;
      s->scout.store(&self, std::memory_order_release);  // with its thread number
      lock.unlock();
      bool work = scout(s, &self);
      s->drowsy.store(false, std::memory_order_relaxed);
      lock.lock();
      s->scouting = false;
      if (work || !s->ready.empty() || !s->jobs.empty() || !s->waiting.empty()) continue;
    }
    set_patient(&self, false);
    self.word.store(0, std::memory_order_relaxed);
    s->sleepers.push_back(&self);
    lock.unlock();
    // acquire: pairs with wake()
    while (self.word.load(std::memory_order_acquire) == 0) futex_wait(&self.word, 0, UINT64_MAX, false);
    lock.lock();
  }
}
}  // namespace

void scheduler_after_fork() { g_state = new State; }

unsigned worker_limit() {
  unsigned n = g_limit.load(std::memory_order_relaxed);
  if (n) return n;
  n = usable_cpus();
  g_limit.store(n, std::memory_order_relaxed);
  return n;
}

void set_worker_limit(unsigned n) { g_limit.store(n, std::memory_order_relaxed); }

unsigned scheduler_threads() {
  std::lock_guard<std::mutex> guard(g_state->lock);
  return g_state->threads;
}

void doorbell(Queue* q) {
  // full fence: `tail` before the look at `state`; the consumer stores `state` before it looks at `tail` again
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t idle = kIdle;
  if (q->state.load(std::memory_order_relaxed) != kIdle) return;
  if (q->state.compare_exchange_strong(idle, kReady, std::memory_order_acq_rel)) push_ready(q);
}

void urge() {
  State* s = g_state;
  if (Sleeper* scout = s->scout.load(std::memory_order_acquire)) set_patient(scout, false);
  s->scout_word.fetch_add(1, std::memory_order_release);
  futex_wake(&s->scout_word, 1, false);
}

uint32_t blocked_entries() { return g_state->waiting_count.load(std::memory_order_relaxed); }

void block(Queue* q, Signal* signal, uint64_t value) {
  State* s = g_state;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    s->waiting.push_back(Waiting{signal, value, signal == q->device->timeline.signal, q, -1, 0});
    s->waiting_count.store(static_cast<uint32_t>(s->waiting.size()), std::memory_order_relaxed);
    q->blocked.store(true, std::memory_order_relaxed);  // the lock orders it with resume_satisfied()
  }
  // A scout that sleeps at signals doesn't know of this one. It is drowsy before it takes the lock: no miss.
  if (s->drowsy.load(std::memory_order_relaxed)) urge();
}

void watch_blocked() {
  State* s = g_state;
  Sleeper* sleeper = nullptr;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    if (!s->scouting) sleeper = wake_candidate(s);
  }
  wake(sleeper);
}

bool blocked_at(Queue* q, BlockedAt* out) {
  State* s = g_state;
  std::lock_guard<std::mutex> guard(s->lock);  // while an entry is in the list its signal's memory is there
  for (Waiting& w : s->waiting) {
    if (w.queue != q) continue;
    *out = {w.signal->id, w.signal->memory->value.load(std::memory_order_acquire), w.value};
    return true;
  }
  return false;
}

Queue* blocked_setter(Queue* q) {
  State* s = g_state;
  std::lock_guard<std::mutex> guard(s->lock);
  for (Waiting& w : s->waiting) {
    if (w.queue != q) continue;
    Queue* setter = w.signal->setter.load(std::memory_order_relaxed);
    return queue_retain_live(setter) ? setter : nullptr;
  }
  return nullptr;
}

void unblock(Queue* q) {
  State* s = g_state;
  std::lock_guard<std::mutex> guard(s->lock);
  for (size_t i = 0; i < s->waiting.size(); ++i) {
    if (s->waiting[i].queue != q) continue;
    s->waiting[i] = s->waiting.back();
    s->waiting.pop_back();
    break;
  }
  s->waiting_count.store(static_cast<uint32_t>(s->waiting.size()), std::memory_order_relaxed);
  q->blocked.store(false, std::memory_order_relaxed);
}

void resume_satisfied() {
  State* s = g_state;
  std::vector<Queue*> queues;
  std::vector<Signal*> dropped;
  {
    std::lock_guard<std::mutex> guard(s->lock);
    for (size_t i = 0; i < s->waiting.size();) {
      Waiting& w = s->waiting[i];
      bool lost = w.queue && w.queue->device->fault.load(std::memory_order_acquire) != 0;
      if (!lost && !satisfied(w)) {
        ++i;
        continue;
      }
      if (w.queue) {
        w.queue->blocked.store(false, std::memory_order_relaxed);
        queues.push_back(w.queue);
        queue_retain(w.queue);
      } else {
        s->finished.push_back(Task{w.descriptor, w.token});
        dropped.push_back(w.signal);
        // Under the lock: a loop that goes cancels its entries, under the lock, before it closes the descriptor, whose
        // number may then be another file's. A write to a non-blocking eventfd; its counter is never full.
        uint64_t one = 1;
        if (write(w.descriptor, &one, sizeof one) < 0) errno = 0;
      }
      w = s->waiting.back();
      s->waiting.pop_back();
    }
    s->waiting_count.store(static_cast<uint32_t>(s->waiting.size()), std::memory_order_relaxed);
  }
  for (Queue* q : queues) {
    doorbell(q);
    queue_release(q);
  }
  for (Signal* signal : dropped) signal_release(signal);
}

}  // namespace hcq
