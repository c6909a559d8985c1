// Pieces of transfers, their system calls, and how a queue's copy command becomes a transfer.
#include "disk/transfer.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/device.hpp"
#include "core/file_copy.hpp"
#include "disk/engine.hpp"
#include "platform/files.hpp"

namespace hcq {

namespace {
constexpr uint64_t kMostAtOnce = 1 << 30;  // Linux moves at most 2 GiB less a page a call
constexpr uint64_t kInline = 256 << 10;    // bytes that the stepping thread reads itself where they are in memory
constexpr uint64_t kTrial = 48 << 20;      // bytes that each way is tried with
constexpr uint64_t kWorthTrying = 256 << 20;
constexpr uint64_t kBetween = 1 << 20;  // bytes that go from file to file at once

struct Shape {
  uint64_t piece;
  unsigned depth;
};
Shape shape_of(const Transfer& t) {
  if (t.writes || t.from) return {t.from ? UINT64_MAX : 8 << 20, 1};
  switch (t.way) {
    case Way::cached:
      return {1 << 20, 4};
    case Way::plain:
      return {4 << 20, 1};
    case Way::deep:
      return {1 << 20, 8};
    default:
      return {2 << 20, 8};
  }
}

std::atomic<uint64_t> g_disturbed{0}, g_most{UINT64_MAX};
std::atomic<int> g_error{0};
std::atomic<int> g_forced{-1};
std::atomic<uint64_t> g_direct{0};

// Whether direct reads of these bytes can go to that memory.
bool fits_direct(const Transfer& t) {
  return file_has_direct(t.file) && (reinterpret_cast<uint64_t>(t.memory) - t.offset) % t.file->memory_alignment == 0;
}

void begin_trial(Transfer* t) {
  t->way = static_cast<Way>(t->trial + 1);
  t->limit = std::min(t->bytes, t->next + kTrial);
  t->began = now_ns();
}

// A piece was the last of its way's trial.
void end_trial(Transfer* t) {
  Speeds& speeds = speeds_of(t->file->volume);
  uint64_t took = now_ns() - t->began;
  speeds.rate[static_cast<int>(t->way)] = static_cast<double>(kTrial) * 1e9 / static_cast<double>(took + 1);
  if (t->trial + 2 < kWays && (static_cast<Way>(t->trial + 2) != Way::direct || fits_direct(*t))) {
    ++t->trial;
    begin_trial(t);
    return;
  }
  t->way = best_way(speeds);
  t->limit = t->bytes;
  t->tried = t->next;
  t->began = now_ns();
}

// A large read that was no trial: what is known of its way follows what it is now, so that another may be better next.
void note_speed(const Transfer& t) {
  double& rate = speeds_of(t.file->volume).rate[static_cast<int>(t.way)];
  if (t.writes || t.from || t.way == Way::cached || rate == 0 || t.bytes - t.tried < kTrial) return;
  double now = static_cast<double>(t.bytes - t.tried) * 1e9 / static_cast<double>(now_ns() - t.began + 1);
  rate += (now - rate) * 0.3;
}

int between_files(const Piece& piece, uint64_t* failed_at) {
  const Transfer& t = *piece.transfer;
  std::vector<uint8_t> memory(std::min(t.bytes, kBetween));
  // As if read first: from the end that is not overwritten before it is read. Both may be one file.
  bool backwards = t.offset > t.from_offset;
  int error = 0;
  for (uint64_t done = 0; done < t.bytes && !error;) {
    uint64_t n = std::min<uint64_t>(memory.size(), t.bytes - done);
    uint64_t at = backwards ? t.bytes - done - n : done;
    uint64_t read = move_bytes(t.from->descriptor, memory.data(), n, t.from_offset + at, false, &error);
    if (error) {
      *failed_at = at + read;
      break;
    }
    *failed_at = at + move_bytes(t.file->descriptor, memory.data(), n, t.offset + at, true, &error);
    done += n;
  }
  return error;
}

uint64_t fault_of(const Transfer& t) {
  const File& f = *t.file;
  std::string where = std::to_string(t.bytes) + " bytes " + (t.writes ? "to" : "from") + " byte " +
                      std::to_string(t.offset) + " on " + (t.writes ? "in " : "of ") + f.path;
  Fault fault{t.queue->device->name, std::string(t.writes ? "write of " : "read of ") + where, "", 0, t.error, f.path};
  if (t.error == kPastEnd)
    fault.message = f.path + " ends at byte " + std::to_string(t.offset + t.failed_at) + ": " + where + " were to be " +
                    (t.writes ? "written" : "read");
  else
    fault.message = std::strerror(t.error);
  return fault_record(std::move(fault));
}

void drop(Transfer* t) {
  file_release(t->file);
  if (t->from) file_release(t->from);
  delete t;
}

// Ends it before it began.
bool refuse(Transfer* t, int error, uint64_t failed_at, uint64_t* word) {
  t->error = error;
  t->failed_at = failed_at;
  *word = fault_of(*t);
  drop(t);
  return true;
}

// Whether these bytes lie within the file, as it is now.
int check_range(const File& f, uint64_t offset, uint64_t bytes, uint64_t* failed_at) {
  int error;
  uint64_t size = file_size(f, &error);
  if (error || offset + bytes <= size) return error;
  *failed_at = size > offset ? size - offset : 0;
  return kPastEnd;
}

}  // namespace

bool start_file_copy(Queue* q, const CopyPacket& p, uint64_t* word) {
  auto* t = new Transfer;
  t->queue = q;
  t->bytes = p.bytes;
  bool to_file = is_file_address(p.destination), from_file = is_file_address(p.source);
  t->writes = to_file;
  t->file = file_at(to_file ? p.destination : p.source, p.bytes, to_file, &t->offset);
  if (to_file && from_file) t->from = file_at(p.source, p.bytes, false, &t->from_offset);
  if (!t->file || (to_file && from_file && !t->from)) {
    *word = fault_record(Fault{q->device->name, "copy", "the file at this address was given back", 0, EBADF, ""});
    if (t->file) file_release(t->file);
    delete t;
    return true;
  }
  t->memory = reinterpret_cast<uint8_t*>(to_file ? p.source : p.destination);
  if (to_file && !t->file->writable) return refuse(t, EACCES, 0, word);
  uint64_t failed_at = 0;
  if (int error = check_range(*t->file, t->offset, t->bytes, &failed_at)) return refuse(t, error, failed_at, word);
  if (!t->bytes) {  // an engine would wait for a piece that never ends
    drop(t);
    return true;
  }
  if (!to_file && t->bytes <= kInline) {
    while (t->bytes) {
      uint64_t n = t->bytes;
      if (disturbed(&n)) break;
      int64_t got = read_cached(t->file->descriptor, t->memory, n, t->offset);
      if (got <= 0) break;  // not in memory, or something is wrong: the engine finds out
      t->memory += got;
      t->offset += static_cast<uint64_t>(got);
      t->bytes -= static_cast<uint64_t>(got);
    }
    if (!t->bytes) {
      drop(t);
      return true;
    }
  }
  t->limit = t->bytes;
  t->began = now_ns();
  if (!to_file) {
    uint64_t cached = cached_bytes(t->file->descriptor, t->offset, t->bytes);
    std::lock_guard<std::mutex> guard(engine_lock());
    Speeds& speeds = speeds_of(t->file->volume);
    if (int forced = g_forced.load(std::memory_order_relaxed); forced >= 0)
      t->way = static_cast<Way>(forced);
    else if (cached != UINT64_MAX && cached >= t->bytes / 2)
      t->way = Way::cached;
    else if (t->bytes >= kWorthTrying && speeds.rate[static_cast<int>(Way::plain)] == 0)
      begin_trial(t);
    else
      t->way = best_way(speeds);
  }
  engine_start(t);
  return false;
}

bool take_piece(Transfer* t, Piece* out) {
  Shape shape = shape_of(*t);
  if (t->error || t->next >= t->limit || t->flying >= shape.depth) return false;
  uint64_t at = t->offset + t->next, n = t->limit - t->next;
  // Cut where the file's own units end, whatever byte it begins with.
  if (shape.piece != UINT64_MAX) n = std::min(n, shape.piece - at % shape.piece);
  out->direct = false;
  if (t->way == Way::direct && !t->writes && fits_direct(*t)) {
    uint64_t unit = t->file->offset_alignment;
    if (at % unit) {
      n = std::min(n, unit - at % unit);
    } else if (n >= unit) {
      n -= n % unit;
      out->direct = true;
      g_direct.fetch_add(1, std::memory_order_relaxed);
    }
  }
  out->transfer = t;
  out->at = t->next;
  out->bytes = n;
  t->next += n;
  ++t->flying;
  return true;
}

bool end_piece(const Piece& piece, int error, uint64_t failed_at) {
  Transfer* t = piece.transfer;
  --t->flying;
  if (error && (!t->error || failed_at < t->failed_at)) {
    t->error = error;
    t->failed_at = failed_at;
  }
  if (t->flying) return false;
  if (t->error) return true;
  if (t->next == t->bytes) {
    if (t->limit == t->bytes) note_speed(*t);
    return true;
  }
  if (t->next == t->limit) end_trial(t);
  return false;
}

void transfer_over(Transfer* t) {
  uint64_t word = t->error ? fault_of(*t) : 0;
  Queue* q = t->queue;
  drop(t);
  file_copy_over(q, word);
}

uint64_t move_bytes(int descriptor, uint8_t* memory, uint64_t bytes, uint64_t offset, bool write, int* error) {
  uint64_t done = 0;
  *error = 0;
  while (done < bytes) {
    uint64_t n = std::min(bytes - done, kMostAtOnce);
    int failed = disturbed(&n);
    ssize_t moved = -1;
    if (!failed) {
      auto at = static_cast<off_t>(offset + done);
      moved = write ? pwrite(descriptor, memory + done, n, at) : pread(descriptor, memory + done, n, at);
      if (moved < 0) failed = errno;
    }
    if (failed == EINTR || failed == EAGAIN) continue;
    if (failed || !moved) {
      *error = failed ? failed : write ? EIO : kPastEnd;
      break;
    }
    done += static_cast<uint64_t>(moved);
  }
  return done;
}

int move_piece(const Piece& piece, uint64_t* failed_at) {
  const Transfer& t = *piece.transfer;
  if (t.from) return between_files(piece, failed_at);
  int error;
  uint64_t done = 0, offset = t.offset + piece.at;
  if (piece.direct) {
    done = move_bytes(t.file->direct, t.memory + piece.at, piece.bytes, offset, false, &error);
    if (error == EINVAL) file_refuse_direct(t.file);
  }
  // What direct I/O refuses, or leaves at a file's end, is read by way of the system's memory.
  done +=
      move_bytes(t.file->descriptor, t.memory + piece.at + done, piece.bytes - done, offset + done, t.writes, &error);
  *failed_at = piece.at + done;
  return error;
}

void force_way(int way) { g_forced.store(way, std::memory_order_relaxed); }
uint64_t direct_pieces() { return g_direct.load(std::memory_order_relaxed); }

void disturb(uint64_t calls, uint64_t most, int error) {
  g_most.store(most, std::memory_order_relaxed);
  g_error.store(error, std::memory_order_relaxed);
  g_disturbed.store(calls, std::memory_order_release);  // what comes before is seen by whoever sees the count
}

int disturbed(uint64_t* bytes) {
  uint64_t left = g_disturbed.load(std::memory_order_relaxed);
  while (left && !g_disturbed.compare_exchange_weak(left, left - 1, std::memory_order_acquire)) {
  }
  if (!left) return 0;
  *bytes = std::min(*bytes, g_most.load(std::memory_order_relaxed));
  return g_error.load(std::memory_order_relaxed);
}

}  // namespace hcq
