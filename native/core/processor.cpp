// The command processor: step() runs the packets of one queue. Resumable; all state is in the queue.
#include <cstdlib>
#include <cstring>

#include "core/device.hpp"
#include "core/file_copy.hpp"
#include "core/interface.hpp"
#include "core/program.hpp"
#include "core/queue_list.hpp"
#include "core/scheduler.hpp"
#include "core/stream.hpp"
#include "cpu/fault.hpp"

namespace hcq {

bool (*g_start_file_copy)(Queue* q, const CopyPacket& packet, uint64_t* error) = nullptr;

namespace {
constexpr uint64_t kShort = 100000;         // ns: what a waiting thread runs itself, whatever its deadline
constexpr uint64_t kSpread = 15000;         // ns: launches longer than this are spread over threads
constexpr uint64_t kChain = 10000;          // ns of short execs between two looks at faults and deadlines
constexpr uint64_t kSpreadBytes = 1 << 20;  // copies larger than this are
constexpr uint64_t kCopyChunk = 256 << 10;
constexpr uint64_t kFew = 16;                // units found at one look, some launches
constexpr uint64_t kHelperCopy = 256 << 10;  // bytes a waiting thread copies itself

uint8_t* current(Queue* q) {
  if (q->nested) return q->nested->memory + static_cast<size_t>(q->nested_offset) * kUnit;
  for (;;) {
    uint8_t* p = q->read_segment->data + static_cast<size_t>(q->read_offset) * kUnit;
    auto* h = reinterpret_cast<PacketHeader*>(p);
    if (h->type != PacketType::link) return p;
    Segment* done = q->read_segment;
    q->read_segment = reinterpret_cast<Segment*>(h->record);
    q->read_offset = 0;
    queue_give_segment(q, done);
  }
}

uint64_t failure(Queue* q) {
  uint64_t lost = q->device->fault.load(std::memory_order_acquire);
  return lost ? lost : q->dropping;
}

// Marks what a dropped packet was to signal as failed. A device that is well still advances its own timeline.
void drop_signal(Queue* q, Signal* s, uint64_t value, uint64_t error, bool own) {
  Device* d = q->device;
  bool lost = d->fault.load(std::memory_order_acquire) != 0;
  signal_fail(*s->memory, error, value, lost ? UINT64_MAX : value);
  if (!lost && (own || s == d->timeline.signal)) signal_set(*s->memory, value);
}

// Whether commands that an interface has are not over.
bool in_flight(const Queue* q) { return q->flights && !flights_none(q); }

// Past the current packet. The store to `done` comes last: what it covers may be released by whoever sees it.
void advance(Queue* q, const PacketHeader* h) {
  if (q->nested) {
    q->nested_offset += h->units;
    if (q->nested_offset < q->nested->units) return;
    q->nested = nullptr;
    h = reinterpret_cast<PacketHeader*>(current(q));
    if (h->flags & kCompletes) {
      auto* p = reinterpret_cast<const IndirectPacket*>(h);
      if (uint64_t error = failure(q)) {
        drop_signal(q, p->signal, p->value, error, true);
      } else if (in_flight(q)) {
        flights_signal(q, p->signal, p->value, true);
      } else {
        if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::signal, p->signal, p->value);
        signal_set(*p->signal->memory, p->value);
      }
    }
  }
  if (h->flags & kEndOfSubmit) q->dropping = 0;
  q->read_offset += h->units;
  q->read_position += h->units;
  if (in_flight(q)) return flights_cover(q);
  q->done.value.store(q->read_position, std::memory_order_release);
}

// Whether an injected failure fires for this packet; its device is lost then.
bool injected_here(Queue* q, const uint8_t* packet, InjectWhat what, const char* name) {
  q->running.store(packet, std::memory_order_release);  // it may stall
  uint64_t error = injected(q->device, what, name);
  if (error) device_lose(q->device, error, q);
  q->running.store(nullptr, std::memory_order_release);
  return error != 0;
}

void run_exec_groups(const Job& job, uint64_t first, uint64_t last) {
  set_running_queue(job.queue);
  run_groups(*job.program, job.arguments, job.groups, job.items, first, last);
}

void run_copy(const Job& job, uint64_t first, uint64_t last) {
  uint64_t from = first * kCopyChunk, to = last * kCopyChunk;
  if (to > job.bytes) to = job.bytes;
  set_running_queue(job.queue);
  RunningProgram copying(&g_copying, nullptr);
  copy_part(reinterpret_cast<void*>(job.destination + from), reinterpret_cast<void*>(job.source + from), to - from,
            job.bytes);
}

// The value of a signal or wait packet.
uint64_t value_of(const Queue* q, const SignalPacket* p) {
  return p->value + (p->header.flags & kRelative ? q->base : 0);
}

void start_indirect(Queue* q, IndirectPacket* p) {
  const Patch* list = p->patch_list ? p->patch_list : reinterpret_cast<const Patch*>(p + 1);
  for (uint32_t i = 0; i < p->patches; ++i) apply_patch(p->commands, list[i]);
  std::free(p->patch_list);
  // relaxed: a report that looks at the packet meanwhile does not look at these
  __atomic_store_n(&p->patch_list, nullptr, __ATOMIC_RELAXED);
  __atomic_store_n(&p->patches, 0, __ATOMIC_RELAXED);
  q->nested_offset = 0;
  q->nested = p->commands;
  q->base = p->base;
}

// Drops the current packet (or enters the nested ones, to drop them).
void drop(Queue* q, uint8_t* packet, uint64_t error) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  switch (h->type) {
    case PacketType::indirect: {
      auto* p = reinterpret_cast<IndirectPacket*>(packet);
      start_indirect(q, p);
      return;
    }
    case PacketType::signal: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      drop_signal(q, p->signal, value_of(q, p), error, false);
      break;
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<ExecPacket*>(packet);
      if (h->flags & kTimed) reinterpret_cast<ExecExtra*>(packet + kUnit)->timing->release();
      if (h->flags & kCompletes) drop_signal(q, p->signal, p->value, error, true);
      break;
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<CopyPacket*>(packet);
      if (h->flags & kTimed) p->timing->release();
      if (h->flags & kCompletes) drop_signal(q, p->signal, p->value, error, true);
      break;
    }
    default:
      break;
  }
  advance(q, h);
}

// What follows the work of an exec or copy packet: times, the signal, the next packet.
void complete(Queue* q, uint8_t* packet, uint64_t start, uint64_t end) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  command_ended(q, packet, submit_record(q, h), start, end);
  advance(q, h);
}

// full: the next packet can't be given to the interface before something is over
enum class Did : uint8_t { next, blocked, pending, refused, again, full };

// Blocks the queue on (signal, value) unless that is reached by now.
Did wait_for(Queue* q, Signal* s, uint64_t value, bool own) {
  q->record_clock = 0;
  block(q, s, value);
  // The entry is in the list now: either the setter sees it, or we see the value.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool ready = own ? s->memory->value.load(std::memory_order_acquire) >= value
                   : signal_reached(*s->memory, value) != Reached::no;
  if (!ready && !q->device->fault.load(std::memory_order_acquire)) return Did::blocked;
  unblock(q);
  return Did::again;
}

// Whether the device's own timeline is at `value`, or will be when a command begins that is given now.
bool comes(Queue* q, Signal* s, uint64_t value) {
  if (s->memory->value.load(std::memory_order_acquire) >= value) return true;
  return q->flights && (flights_promise(q, s, value) || flights_follow(q, s, value));
}

Did given(Gave gave, Queue* q, const PacketHeader* h) {
  if (gave == Gave::full) return Did::full;
  if (gave == Gave::lost) return Did::again;
  advance(q, h);
  return Did::next;
}

// What a job of a program's groups took, once it is over.
void note_duration(const Job* job) {
  if (!job->program) return;
  // relaxed: the count of what is left ordered the threads' additions before this
  const_cast<Program*>(job->program)
      ->ran(work_items(job->total, job->items), job->busy_ns.load(std::memory_order_relaxed));
}

// Runs an exec or copy as a job over several threads. When others are still at it, whoever finishes last inherits the
// step lock and goes on with the queue; this thread must not touch it any more.
Did spread(Queue* q, Job* job, unsigned threads) {
  q->job = job;
  q->job_start = now_ns();
  queue_retain(q);  // the job's: whoever finishes it still unlocks the queue after its last packet is over
  job_open(job, threads - 1);
  if (!job_run(job, true)) return Did::pending;
  q->job = nullptr;
  note_duration(job);
  job_release(job);
  queue_release(q);
  return Did::next;
}

// When a command starts: just now, which the record of the one before may know already.
uint64_t start_time(Queue* q, const PacketHeader& h, const Signal* signal, uint64_t value) {
  uint64_t known = q->record_clock;
  q->record_clock = 0;
  // Who waits for another queue's signal starts after it was set, which may be this very moment.
  bool own = !(h.flags & kWaitPrevious) || (q->record_signal == signal && q->record_value + 1 == value);
  return known && own ? known : now_ns();
}

Did run_exec(Queue* q, uint8_t* packet, bool helper, uint64_t deadline) {
  auto* p = reinterpret_cast<ExecPacket*>(packet);
  uint32_t flags = p->header.flags;
  Program* program = p->program;
  if (flags & kWaitPrevious && !comes(q, p->signal, p->value - 1)) return wait_for(q, p->signal, p->value - 1, true);
  uint64_t total = static_cast<uint64_t>(p->groups[0]) * p->groups[1] * p->groups[2];
  uint64_t work = work_items(total, p->items), estimate = program->estimate(work);
  if (q->flights) {
    // What an interface does at the first launch of some size, compile for it say, may take long.
    uint64_t size = p->items[0] | static_cast<uint64_t>(p->items[1]) << 21 | static_cast<uint64_t>(p->items[2]) << 42;
    if (helper && program->given_items.load(std::memory_order_relaxed) != size) return Did::refused;
    program->given_items.store(size, std::memory_order_relaxed);  // a hint
  } else if (helper && program->kind != EntryKind::nothing &&
             (estimate == 0 || (estimate > kShort && now_ns() + estimate > deadline)))
    return Did::refused;  // a first run may be of any length
  if (q->device->injections.load(std::memory_order_relaxed)) {
    if (helper) return Did::refused;  // a stall must not hold a thread that has a deadline
    if (in_flight(q)) return Did::full;
    q->record_clock = 0;
    if (injected_here(q, packet, InjectWhat::exec, program->name.c_str())) return Did::again;
  }
  const uint8_t* arguments =
      flags & kExternalArgs ? reinterpret_cast<ExecExtra*>(packet + kUnit)->arguments : inline_arguments(p);
  if (q->flights) return given(flights_exec(q, packet, arguments, !total), q, &p->header);
  unsigned threads = worker_limit();
  if (total > 1 && threads > 1 && (estimate == 0 || estimate > kSpread)) {
    Job* job = job_make(q);
    job->run = run_exec_groups;
    job->program = program;
    job->arguments = arguments;
    std::memcpy(job->groups, p->groups, sizeof job->groups);
    std::memcpy(job->items, p->items, sizeof job->items);
    // Eight ranges a thread: balanced when groups differ, and few enough that taking one is no cost. With a known
    // duration a range is at least 2 us.
    uint64_t chunk = total / (static_cast<uint64_t>(threads) * 8);
    if (estimate) {
      uint64_t least = total * 2000 / estimate;
      if (chunk < least) chunk = least;
    }
    job->chunk = chunk ? chunk : 1;
    job->total = total;
    q->running.store(packet, std::memory_order_release);
    if (Did did = spread(q, job, threads); did != Did::next) return did;
    complete(q, packet, q->job_start, now_ns());
    return Did::next;
  }
  // The clock costs as much as a small kernel: look at it always for kernels of some length, else now and then.
  bool measured = flags & kTimed || estimate == 0 || estimate > 2000 || (++q->execs & 15) == 0;
  bool timed = measured || recording();
  uint64_t start = timed ? start_time(q, p->header, p->signal, p->value) : 0, end = 0;
  q->running.store(packet, std::memory_order_release);
  set_running_queue(q);
  if (total) run_groups(*program, arguments, p->groups, p->items, 0, total);
  if (timed) {
    end = now_ns();
    if (measured && total) program->ran(work, end - start + 1);
  }
  complete(q, packet, start, end);
  return Did::next;
}

// The end of a copy from or to a file. One that failed drops the rest of its submit; the device is well.
void end_file_copy(Queue* q, uint8_t* packet, uint64_t error) {
  if (!error) {
    complete(q, packet, q->job_start, now_ns());
    return;
  }
  q->completed.store(q->completed.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  q->running.store(nullptr, std::memory_order_release);
  q->dropping = error;
  q->device->reported.store(error, std::memory_order_release);  // told by the next synchronize
  drop(q, packet, error);
}

Did run_file_copy(Queue* q, uint8_t* packet) {
  q->record_clock = 0;
  q->job_start = now_ns();
  queue_retain(q);  // the copy's, as a job's
  uint64_t error = 0;
  q->running.store(packet, std::memory_order_release);
  if (!g_start_file_copy(q, *reinterpret_cast<CopyPacket*>(packet), &error)) return Did::pending;
  queue_release(q);
  end_file_copy(q, packet, error);
  return Did::next;
}

Did run_copy_packet(Queue* q, uint8_t* packet, bool helper) {
  auto* p = reinterpret_cast<CopyPacket*>(packet);
  if (p->header.flags & kWaitPrevious && !comes(q, p->signal, p->value - 1))
    return wait_for(q, p->signal, p->value - 1, true);
  bool of_file = is_file_address(p->destination) || is_file_address(p->source);
  if (helper && p->bytes > kHelperCopy && !of_file && !q->flights) return Did::refused;
  if (q->device->injections.load(std::memory_order_relaxed)) {
    if (helper) return Did::refused;
    if (in_flight(q)) return Did::full;
    if (injected_here(q, packet, InjectWhat::copy, "copy")) return Did::again;
  }
  if (__builtin_expect(of_file, 0)) return run_file_copy(q, packet);
  if (q->flights) return given(flights_copy(q, packet), q, &p->header);
  unsigned threads = worker_limit();
  uint64_t apart = p->destination > p->source ? p->destination - p->source : p->source - p->destination;
  bool overlap = apart < p->bytes;
  if (p->bytes > kSpreadBytes && threads > 1 && !overlap) {
    Job* job = job_make(q);
    job->run = run_copy;
    job->destination = p->destination;
    job->source = p->source;
    job->bytes = p->bytes;
    job->total = (p->bytes + kCopyChunk - 1) / kCopyChunk;
    job->chunk = 1;
    q->running.store(packet, std::memory_order_release);
    if (Did did = spread(q, job, threads); did != Did::next) return did;
    complete(q, packet, q->job_start, now_ns());
    return Did::next;
  }
  bool timed = p->header.flags & kTimed || recording();
  uint64_t start = timed ? start_time(q, p->header, p->signal, p->value) : 0;
  q->running.store(packet, std::memory_order_release);
  {
    set_running_queue(q);
    RunningProgram copying(&g_copying, nullptr);
    auto *to = reinterpret_cast<void*>(p->destination), *from = reinterpret_cast<void*>(p->source);
    if (overlap)
      std::memmove(to, from, p->bytes);
    else
      copy_part(to, from, p->bytes, p->bytes);
  }
  complete(q, packet, start, timed ? now_ns() : 0);
  return Did::next;
}

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
      if (r == Reached::no && q->flights &&
          (flights_promise(q, p->signal, value) || flights_follow(q, p->signal, value)))
        r = Reached::yes;
      if (r == Reached::no) return wait_for(q, p->signal, value, own);
      if (r == Reached::failed) {
        if (in_flight(q)) return Did::full;  // what is dropped fails after what came before it
        uint64_t error = p->signal->memory->error.load(std::memory_order_acquire);
        q->dropping = error;
        q->device->reported.store(error, std::memory_order_release);  // told by the next synchronize
      }
      if (__builtin_expect(recording() != 0, 0)) record_order(q, RecordKind::wait, p->signal, value);
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

// Short execs of bound commands, one after the other: what run_exec does for each of them, with its looks at the world
// taken once for some microseconds of work. The last command is left for run_packet, which ends the submit.
void run_chain(Queue* q) {
  BoundCommands* bound = q->nested;
  uint64_t spent = 0, ran = 0;
  const ExecPacket* last = nullptr;
  set_running_queue(q);
  while (spent < kChain) {
    auto* p = reinterpret_cast<ExecPacket*>(bound->memory + static_cast<size_t>(q->nested_offset) * kUnit);
    if (p->header.type != PacketType::exec || p->header.flags || q->nested_offset + p->header.units >= bound->units)
      break;
    Program* program = p->program;
    uint64_t total = static_cast<uint64_t>(p->groups[0]) * p->groups[1] * p->groups[2];
    uint64_t work = work_items(total, p->items), estimate = program->estimate(work);
    if (!estimate || estimate > kSpread) break;
    bool timed = estimate > 2000 || (++q->execs & 15) == 0;
    uint64_t start = timed ? now_ns() : 0;
    // relaxed, as the end below: a look that comes between two short ones is wrong by one
    q->running.store(reinterpret_cast<const uint8_t*>(p), std::memory_order_relaxed);
    last = p;
    if (total) run_groups(*program, inline_arguments(p), p->groups, p->items, 0, total);
    if (timed && total) program->ran(work, now_ns() - start + 1);
    q->nested_offset += p->header.units;
    spent += estimate;
    ++ran;
  }
  if (!ran) return;
  q->last_program = last->program->id;
  q->last_record = submit_record(q, &last->header);
  q->last_signal = 0;
  q->completed.store(q->completed.load(std::memory_order_relaxed) + ran, std::memory_order_release);
  q->running.store(nullptr, std::memory_order_release);
}

// Those who wait for a position sleep on the queue's own signal; they are woken when there is nothing to go on with.
void wake_watchers(Queue* q) { signal_wake(q->done); }
}  // namespace

void command_ended(Queue* q, uint8_t* packet, uint64_t record, uint64_t start, uint64_t end) {
  auto* h = reinterpret_cast<PacketHeader*>(packet);
  Signal* signal;
  uint64_t value;
  Timing* timing = nullptr;
  if (h->type == PacketType::exec) {
    auto* p = reinterpret_cast<ExecPacket*>(packet);
    signal = p->signal;
    value = p->value;
    if (h->flags & kTimed) timing = reinterpret_cast<ExecExtra*>(packet + kUnit)->timing;
    q->last_program = p->program->id;
  } else {
    auto* p = reinterpret_cast<CopyPacket*>(packet);
    signal = p->signal;
    value = p->value;
    if (h->flags & kTimed) timing = p->timing;
    q->last_program = 0;
  }
  q->last_record = record;
  q->last_signal = h->flags & kCompletes ? signal->id : 0;
  q->last_value = value;
  // release: who sees these sees the four above. One writer; `completed` is read to see that a queue moves
  q->completed.store(q->completed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  q->running.store(nullptr, std::memory_order_release);
  if (timing) {
    timing->start = start;
    timing->end = end;
    timing->release();
  }
  if (start && __builtin_expect(recording() != 0, 0)) {
    const RecordChunk* chunk = q->record_slot.chunk;
    record_command(q, packet, record, start, end);
    // The next command starts now, unless memory was made or somebody has to be woken: one look at the clock for both.
    if (chunk == q->record_slot.chunk && !blocked_entries() &&
        !(h->flags & kCompletes && signal->memory->sleepers.load(std::memory_order_relaxed)))
      q->record_clock = end;
    q->record_signal = h->flags & kCompletes ? signal : nullptr;
    q->record_value = value;
  }
  if (h->flags & kCompletes) signal_set(*signal->memory, value);
}

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
    if (q->nested && !q->flights && !failure(q) && !q->device->injections.load(std::memory_order_relaxed) &&
        !recording())
      run_chain(q);
    Did did = run_packet(q, helper, deadline);
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
  q->step_lock.unlock();
  if (q->flights) flights_offer(q);
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
