// The work of packets: launches and copies, on one thread or spread over several (processor.hpp).
#include <cstring>

#include "core/file_copy.hpp"
#include "core/processor.hpp"
#include "core/program.hpp"
#include "core/stream.hpp"
#include "cpu/fault.hpp"

namespace hcq {

bool (*g_start_file_copy)(Queue* q, const CopyPacket& packet, uint64_t* error) = nullptr;

namespace processor {

namespace {
constexpr uint64_t kSpread = 15000;         // ns: launches longer than this are spread over threads
constexpr uint64_t kChain = 10000;          // ns of short execs between two looks at faults and deadlines
constexpr uint64_t kSpreadBytes = 1 << 20;  // copies larger than this are
constexpr uint64_t kCopyChunk = 256 << 10;
constexpr uint64_t kHelperCopy = 256 << 10;  // bytes a waiting thread copies itself

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
}  // namespace

void note_duration(const Job* job) {
  if (!job->program) return;
  // relaxed: the count of what is left ordered the threads' additions before this
  const_cast<Program*>(job->program)
      ->ran(work_items(job->total, job->items), job->busy_ns.load(std::memory_order_relaxed));
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
    if (helper && !program->ready && program->given_items.load(std::memory_order_relaxed) != size) return Did::refused;
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

namespace {
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
}  // namespace

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

Did run_batch(Queue* q, bool helper) {
  BoundCommands* bound = q->nested;
  const Interface& batches = *q->device->interface;
  uint32_t end = q->nested_offset, count = 0;
  while (end < bound->units) {
    auto* h = reinterpret_cast<const PacketHeader*>(bound->memory + static_cast<size_t>(end) * kUnit);
    if (h->flags & ~batches.batch_flags) break;
    if (h->type == PacketType::copy) {
      auto* p = reinterpret_cast<const CopyPacket*>(h);
      uint64_t apart = p->destination > p->source ? p->destination - p->source : p->source - p->destination;
      bool overlap = apart && apart < p->bytes;
      if (overlap || is_file_address(p->destination) || is_file_address(p->source)) break;
    } else if (h->type != PacketType::exec && h->type != PacketType::barrier) {
      break;
    }
    end += h->units;
    ++count;
  }
  if (count < batches.least_batch) return Did::again;
  if (helper && !bound->carried) return Did::refused;  // the first time takes long
  Batched given = flights_batch(q, end, count);
  if (given == Batched::no || given == Batched::lost) return Did::again;
  if (given == Batched::full) return Did::full;
  while (q->nested && q->nested_offset < end) advance(q, reinterpret_cast<const PacketHeader*>(current(q)));
  return Did::next;
}

}  // namespace processor

}  // namespace hcq
