// The command processor: step() runs the packets of one queue. Resumable; all state is in the queue.
#include "core/processor.hpp"

#include "core/file_copy.hpp"

namespace hcq {

using namespace processor;

namespace {
constexpr uint64_t kFew = 16;  // units found at one look, some launches

Did run_packet(Queue* q, bool helper, uint64_t deadline) {
  uint8_t* packet = current(q);
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  if (uint64_t error = failure(q); __builtin_expect(error != 0, 0)) {
    drop(q, packet, error);
    return Did::next;
  }
  switch (h->type) {
    case PacketType::exec:
      return run_exec(q, packet, helper, deadline);
    case PacketType::copy:
      return run_copy_packet(q, packet, helper);
    case PacketType::signal: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      uint64_t value = value_of(q, p);
      if (in_flight(q)) {
        if (!flights_signal(q, p->signal, value)) return Did::full;
        break;
      }
      if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::signal, p->signal, value);
      signal_set(*p->signal->memory, value);
      break;
    }
    case PacketType::wait: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      bool own = p->signal == q->device->timeline.signal;
      uint64_t value = value_of(q, p);
      Reached r = signal_reached(*p->signal->memory, value);
      if (own && r == Reached::failed)  // its own dropped submit was reported already; its device goes on
        r = p->signal->memory->value.load(std::memory_order_acquire) >= value ? Reached::yes : Reached::no;
      bool follows = false;  // recorded once the lane has come past it, behind what sets the signal
      if (r == Reached::no && q->flights) {
        bool promised = flights_promise(q, p->signal, value);
        follows = !promised && flights_follow(q, p->signal, value);
        if (promised || follows) r = Reached::yes;
      }
      if (r == Reached::no) return wait_for(q, p->signal, value, own);
      if (r == Reached::failed) {
        if (in_flight(q)) return Did::full;  // what is dropped fails after what came before it
        uint64_t error = p->signal->memory->error.load(std::memory_order_acquire);
        q->dropping = error;
        q->device->reported.store(error, std::memory_order_release);  // told by the next synchronize
      }
      if (__builtin_expect(recording() != 0, 0) && !follows) record_order(q, RecordKind::wait, p->signal, value);
      break;
    }
    case PacketType::timestamp: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      if (q->flights) {
        if (!flights_timestamp(q, p->signal)) return Did::full;
        break;
      }
      p->signal->memory->timestamp.store(now_ns(), std::memory_order_release);
      break;
    }
    case PacketType::barrier:
      std::atomic_thread_fence(std::memory_order_seq_cst);  // writes by the host or a peer before this are seen after
      break;
    case PacketType::indirect: {
      auto* p = reinterpret_cast<IndirectPacket*>(packet);
      if (h->flags & kWaitPrevious && !comes(q, p->signal, p->value - 1))
        return wait_for(q, p->signal, p->value - 1, true);
      if (q->flights && flights_full(q)) return Did::full;
      if (__builtin_expect(recording() != 0, 0) && h->flags & kWaitPrevious)
        record_order(q, RecordKind::wait, p->signal, p->value - 1);
      start_indirect(q, p);
      return Did::again;
    }
    case PacketType::link:
      break;
  }
  advance(q, h);
  return Did::next;
}

// Those who wait for a position sleep on the queue's own signal; they are woken when there is nothing to go on with.
void wake_watchers(Queue* q) { signal_wake(q->done); }
}  // namespace

StepResult step(Queue* q, bool helper, uint64_t deadline) {
  if (!q->step_lock.try_lock()) return StepResult::busy;
  q->record_clock = 0;
  StepResult result;
  bool first = !q->flights || !flights_settle(q);
  uint64_t from = q->read_position, known = from;
  for (;;) {
    if (q->read_position == known) {
      // Each look takes the line from the launching thread. Where the last one found little, run_queue() gives it time.
      if (known != from && known - from <= kFew && !helper && !q->flights) {
        result = StepResult::empty;
        break;
      }
      from = known;
      known = q->tail.load(std::memory_order_acquire);
      if (known == from) {
        result = StepResult::empty;
        break;
      }
    }
    if (helper && !first && now_ns() >= deadline) {
      result = StepResult::out_of_time;
      break;
    }
    if (q->blocked.load(std::memory_order_acquire)) unblock(q);  // the entry is made anew if it still has to wait
    Did did = Did::again;
    if (q->nested && !failure(q) && !q->device->injections.load(std::memory_order_relaxed) && !recording()) {
      if (!q->flights)
        run_chain(q);
      else if (flights_batches(q))
        did = run_batch(q, helper);
    }
    if (did == Did::again) did = run_packet(q, helper, deadline);
    if (did == Did::next || did == Did::again) {
      first = false;
      continue;
    }
    if (did == Did::pending) return StepResult::pending;  // the lock went to whoever finishes the job
    if (did == Did::full) {
      if (flights_settle(q)) continue;
      result = StepResult::full;
      break;
    }
    result = did == Did::blocked ? StepResult::blocked : StepResult::refused;
    break;
  }
  if (q->flights && flights_rest(q, result == StepResult::full)) first = false;
  const Device* offers = q->flights ? flights_offer(q) : nullptr;
  q->step_lock.unlock();
  if (offers) look_again(offers);
  if (!first) {
    if (helper) q->helped.fetch_add(1, std::memory_order_relaxed);
    wake_watchers(q);
  }
  if (helper) {
    if (result == StepResult::blocked) watch_blocked();
    leave(q);
  }
  return result;
}

void finish_job(Queue* q) {
  Job* job = q->job;
  uint8_t* packet = current(q);
  note_duration(job);
  q->job = nullptr;
  complete(q, packet, q->job_start, now_ns());
  q->step_lock.unlock();  // held since the thread that published the job
  job_release(job);
  wake_watchers(q);
  leave(q);
  queue_release(q);
}

void file_copy_over(Queue* q, uint64_t error) {
  end_file_copy(q, current(q), error);
  q->step_lock.unlock();  // held since the thread that started the copy
  wake_watchers(q);
  // What follows is mostly a signal, or the next copy: cheaper done here than handed over.
  step(q, true, now_ns() + kShort);
  leave(q);
  queue_release(q);
}

void leave(Queue* q) {
  // full fence: pairs with doorbell() and with the pool thread that gives the queue up; one of us sees the other
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool more = q->flights ? flights_wanted(q) : q->has_work() && !q->blocked.load(std::memory_order_relaxed);
  if (more && !q->step_lock.held()) doorbell(q);
}

}  // namespace hcq
