// The engines: threads that call pread and pwrite, and one that keeps a ring of reads filled.
#include "disk/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/scheduler.hpp"
#include "platform/platform.hpp"
#include "platform/uring.hpp"

namespace hcq {

namespace {
constexpr unsigned kMostThreads = 4;
constexpr unsigned kRingDepth = 32;  // reads under way, of all transfers

struct Engines {
  std::mutex lock;  // all below, and what transfers say is under it
  std::condition_variable work;
  std::vector<Transfer*> for_threads, for_ring;
  unsigned threads = 0, idle = 0;
  ReadRing* ring = nullptr;
  bool ring_tried = false, ring_sleeps = false;
  std::unordered_map<uint64_t, Speeds> speeds;
};
Engines* g_engines = new Engines;
std::atomic<EngineChoice> g_choice{EngineChoice::automatic};

void forget(std::vector<Transfer*>* list, Transfer* t) { list->erase(std::find(list->begin(), list->end(), t)); }

bool next_piece(const std::vector<Transfer*>& list, Piece* piece) {
  for (Transfer* t : list)
    if (take_piece(t, piece)) return true;
  return false;
}

// One piece on this thread, which has the lock before and after.
void work_off(Engines* e, std::unique_lock<std::mutex>& guard, const Piece& piece) {
  guard.unlock();
  uint64_t failed_at = 0;
  int error = move_piece(piece, &failed_at);
  guard.lock();
  if (!end_piece(piece, error, failed_at)) return;
  forget(&e->for_threads, piece.transfer);
  guard.unlock();
  transfer_over(piece.transfer);
  guard.lock();
}

void run_thread() {
  set_thread_name("hcq-disk");
  Engines* e = g_engines;
  std::unique_lock<std::mutex> guard(e->lock);
  for (;;) {
    Piece piece;
    if (!next_piece(e->for_threads, &piece)) {
      ++e->idle;
      e->work.wait(guard);
      --e->idle;
      continue;
    }
    work_off(e, guard, piece);
  }
}

// A read in the ring: what is left of a piece.
struct Read {
  Piece piece;
  uint64_t done;
  bool direct, used;
  int failure;  // what a test makes of it
};

void run_ring() {
  set_thread_name("hcq-disk-ring");
  Engines* e = g_engines;
  std::vector<Read> reads(kRingDepth);
  std::vector<ReadRing::Ended> ended;
  std::vector<Transfer*> over;
  unsigned flying = 0;
  auto begin = [&](size_t tag) {
    Read& r = reads[tag];
    const Transfer& t = *r.piece.transfer;
    uint64_t n = r.piece.bytes - r.done;
    uint64_t whole = n;
    r.failure = disturbed(&n);
    if (n < whole) r.direct = false;
    uint64_t at = r.piece.at + r.done;
    e->ring->read(r.direct ? t.file->direct : t.file->descriptor, t.memory + at, static_cast<uint32_t>(n),
                  t.offset + at, tag);
  };
  std::unique_lock<std::mutex> guard(e->lock);
  for (;;) {
    Piece piece;
    while (flying < kRingDepth && next_piece(e->for_ring, &piece)) {
      size_t tag = 0;
      while (reads[tag].used) ++tag;
      reads[tag] = Read{piece, 0, piece.direct, true, 0};
      ++flying;
      begin(tag);
    }
    e->ring_sleeps = true;
    guard.unlock();
    ended.clear();
    e->ring->wait(&ended);
    guard.lock();
    e->ring_sleeps = false;
    for (const ReadRing::Ended& end : ended) {
      Read& r = reads[end.tag];
      int error = end.result < 0 ? -end.result : r.failure;
      if (end.result > 0 && !error) r.done += static_cast<uint64_t>(end.result);
      bool again = error == EINTR || error == EAGAIN;
      if (!again && r.direct && (error == EINVAL || !error)) {
        // Refused, or short at the file's end: the rest by way of the system's memory.
        if (error == EINVAL) file_refuse_direct(r.piece.transfer->file);
        r.direct = false;
        again = true;
      }
      if (!error && !again && end.result == 0) error = kPastEnd;
      if (!error) again = true;
      if (again && r.done < r.piece.bytes) {
        begin(end.tag);
        continue;
      }
      r.used = false;
      --flying;
      if (!end_piece(r.piece, r.done == r.piece.bytes ? 0 : error, r.piece.at + r.done)) continue;
      forget(&e->for_ring, r.piece.transfer);
      over.push_back(r.piece.transfer);
    }
    if (over.empty()) continue;
    guard.unlock();
    for (Transfer* t : over) transfer_over(t);
    over.clear();
    guard.lock();
  }
}

// Under the lock. Whether there is a ring, with its thread.
bool has_ring(Engines* e) {
  if (g_choice.load(std::memory_order_relaxed) == EngineChoice::threads) return false;
  if (!e->ring_tried) {
    e->ring_tried = true;
    e->ring = ReadRing::open(kRingDepth);
    if (e->ring && !start_thread(run_ring)) {
      delete e->ring;
      e->ring = nullptr;
    }
  }
  return e->ring != nullptr;
}
}  // namespace

std::mutex& engine_lock() { return g_engines->lock; }
void engine_choose(EngineChoice choice) { g_choice.store(choice, std::memory_order_relaxed); }

bool engine_has_uring() {
  std::lock_guard<std::mutex> guard(g_engines->lock);
  return has_ring(g_engines);
}

void engine_start(Transfer* t) {
  Engines* e = g_engines;
  std::unique_lock<std::mutex> guard(e->lock);
  // What is in memory already is copied by several threads: the ring's would do it alone.
  if (!t->writes && t->way != Way::cached && has_ring(e)) {
    e->for_ring.push_back(t);
    bool wake = e->ring_sleeps;
    guard.unlock();
    if (wake) e->ring->wake();
    return;
  }
  e->for_threads.push_back(t);
  unsigned most = std::min(kMostThreads, std::max(2u, worker_limit()));
  unsigned wanted = t->writes || t->way == Way::plain ? 1 : most;  // the others' pieces go one by one
  for (unsigned n = e->idle; n < wanted && e->threads < most && start_thread(run_thread); ++n) ++e->threads;
  if (!e->threads) {  // the system has none for us
    forget(&e->for_threads, t);
    t->error = EAGAIN;
    guard.unlock();
    transfer_over(t);
    return;
  }
  guard.unlock();
  e->work.notify_all();
}

bool engine_help() {
  Engines* e = g_engines;
  std::unique_lock<std::mutex> guard(e->lock);
  for (Transfer* t : e->for_threads) {
    Piece piece;
    if (t->writes || t->way != Way::cached || !take_piece(t, &piece)) continue;
    work_off(e, guard, piece);
    return true;
  }
  return false;
}

unsigned engine_threads() {
  std::lock_guard<std::mutex> guard(g_engines->lock);
  return g_engines->threads + (g_engines->ring ? 1 : 0);
}

void engine_after_fork() {
  if (g_engines->ring) g_engines->ring->close_in_child();
  g_engines = new Engines;
}

Speeds& speeds_of(uint64_t volume) { return g_engines->speeds[volume]; }

Way best_way(const Speeds& speeds) {
  Way best = Way::deep;
  for (Way way : {Way::plain, Way::deep, Way::direct}) {
    double rate = speeds.rate[static_cast<int>(way)];
    // Direct reads leave nothing in memory for the next time: they must be worth that.
    if (way == Way::direct) rate *= 0.8;
    if (rate > speeds.rate[static_cast<int>(best)]) best = way;
  }
  return best;
}

}  // namespace hcq
