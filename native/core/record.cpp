// The store of records: chunks, side tables, sessions (record.hpp).
#include "core/record.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "core/record_lanes.hpp"
#include "platform/platform.hpp"

namespace hcq {

std::atomic<uint64_t> g_recording{0};

namespace {
// A writer's chunks grow: most write little. No chunk is more than a quarter of the store, so that a small one has room
// for several writers.
constexpr uint64_t kLeastChunk = 4 << 10, kFirstChunk = 64 << 10, kLargestChunk = 2 << 20;
// Chunks lie in memory that comes in huge pages, touched before it is written to: a record whose memory has to be found
// costs 50 ns more than one whose memory is there. A profile has the first piece before its first command.
constexpr uint64_t kPiece = 2 << 20, kFirstPiece = 2 * kPiece;
}  // namespace

// What chunks are cut from.
struct RecordMemory {
  std::atomic<uint32_t> refs{1};  // chunks in it, and the store that cuts them
  uint8_t* start;
  uint64_t bytes, used;  // `used`: under the store's lock
};

namespace {
struct Store {
  SpinLock lock;  // all below; held briefly
  uint64_t session = 0;
  uint64_t bytes = 0, most_bytes = 0;
  uint32_t profiles = 0;
  RecordMemory* memory = nullptr;
  std::vector<RecordChunk*> chunks;
  std::vector<RecordTrack> tracks;
  std::unordered_map<uint64_t, std::string> programs;
  std::vector<std::string> labels;
  std::unordered_map<std::string, uint64_t> label_numbers;
  std::atomic<uint64_t> dropped{0};
};
Store* g_store = new Store;
std::atomic<uint64_t> g_sessions{0};  // never the same number twice, in children neither

RecordMemory* memory_make(uint64_t bytes) {
  auto* memory = new (std::nothrow) RecordMemory;
  if (!memory) return nullptr;
  memory->start = static_cast<uint8_t*>(map_memory(bytes, kPiece));
  if (!memory->start) {
    delete memory;
    return nullptr;
  }
  populate_pages(memory->start, bytes);
  memory->bytes = bytes;
  memory->used = 0;
  return memory;
}

void memory_release(RecordMemory* memory) {
  // acq_rel: the last holder gives back what the others wrote to
  if (!memory || memory->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  unmap_memory(memory->start, memory->bytes);
  delete memory;
}

void chunk_release(RecordChunk* chunk) {
  // acq_rel: as above
  if (chunk->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) memory_release(chunk->memory);
}

// Under the lock. Null: the store has no memory for it; `full`: nor may it have more.
RecordChunk* chunk_cut(Store* s, uint64_t bytes, bool* full) {
  while (bytes > kLeastChunk && (bytes > s->most_bytes / 4 || s->bytes + bytes > s->most_bytes)) bytes /= 2;
  *full = s->bytes + bytes > s->most_bytes;
  RecordMemory* memory = s->memory;
  if (*full || !memory || memory->bytes - memory->used < kLeastChunk) return nullptr;
  bytes = std::min(bytes, memory->bytes - memory->used);
  auto* chunk = new (memory->start + memory->used) RecordChunk;
  chunk->session = s->session;
  chunk->bytes = bytes;
  chunk->memory = memory;
  chunk->capacity = static_cast<uint32_t>((bytes - offsetof(RecordChunk, records)) / sizeof(Record));
  try {
    s->chunks.push_back(chunk);
  } catch (const std::bad_alloc&) {
    *full = true;
    return nullptr;
  }
  memory->refs.fetch_add(1, std::memory_order_relaxed);  // the store holds one
  memory->used += bytes;
  s->bytes += bytes;
  return chunk;
}

// A fresh chunk; null when the session is over, the store is full or there is no memory.
RecordChunk* chunk_make(uint64_t session, uint64_t bytes) {
  Store* s = g_store;
  RecordMemory* fresh = nullptr;
  for (;;) {
    bool full = false;
    RecordChunk* chunk = nullptr;
    RecordMemory* over = fresh;
    s->lock.lock();
    bool ours = session && s->session == session;
    if (ours) chunk = chunk_cut(s, bytes, &full);
    if (ours && !chunk && !full && fresh) {
      over = std::exchange(s->memory, fresh);
      chunk = chunk_cut(s, bytes, &full);
    }
    s->lock.unlock();
    memory_release(over);
    if (chunk || !ours) return chunk;
    if (full || !(fresh = memory_make(kPiece))) break;
  }
  s->dropped.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}
}  // namespace

RecordChunk* record_chunk_next(RecordSlot& slot, uint64_t session) {
  RecordChunk* chunk = slot.chunk;
  uint64_t bytes = chunk && chunk->session == session ? std::min(chunk->bytes * 2, kLargestChunk) : kFirstChunk;
  record_slot_drop(slot);
  return slot.chunk = chunk_make(session, bytes);
}

void record_slot_drop(RecordSlot& slot) {
  if (slot.chunk) chunk_release(slot.chunk);
  slot.chunk = nullptr;
}

uint32_t record_track(uint64_t session, RecordTrack track) {
  Store* s = g_store;
  uint32_t number = 0;
  s->lock.lock();
  if (s->session == session) {
    // A device is one track, however often it is asked for; queues and threads keep their number themselves.
    if (track.kind == TrackKind::device)
      while (number < s->tracks.size() &&
             !(s->tracks[number].kind == TrackKind::device && s->tracks[number].device == track.device))
        ++number;
    else
      number = static_cast<uint32_t>(s->tracks.size());
    if (number == s->tracks.size()) s->tracks.push_back(std::move(track));
  }
  s->lock.unlock();
  return number;
}

void record_name(uint64_t session, uint64_t program, const std::string& name) {
  Store* s = g_store;
  s->lock.lock();
  if (s->session == session) s->programs.emplace(program, name);
  s->lock.unlock();
}

uint64_t record_label(const std::string& text) {
  Store* s = g_store;
  s->lock.lock();
  auto [at, fresh] = s->label_numbers.emplace(text, s->labels.size());
  if (fresh) s->labels.push_back(text);
  uint64_t number = at->second;
  s->lock.unlock();
  return number;
}

void record_begin(uint64_t most_records) {
  Store* s = g_store;
  uint64_t most = std::min(most_records, UINT64_MAX / sizeof(Record)) * sizeof(Record);
  // With the GIL, which is what guards `profiles`. Without memory now, the first writer asks again.
  RecordMemory* memory = s->profiles ? nullptr : memory_make(most < kPiece ? kPiece : kFirstPiece);
  s->lock.lock();
  if (s->profiles++ == 0) {
    s->memory = memory;
    s->session = g_sessions.fetch_add(1, std::memory_order_relaxed) + 1;
    s->bytes = 0;
    s->most_bytes = most;
    s->tracks.clear();
    s->programs.clear();
    s->dropped.store(0, std::memory_order_relaxed);
    // release: the tables are fresh for whoever sees the session
    g_recording.store(s->session, std::memory_order_release);
  } else {
    s->most_bytes = std::max(s->most_bytes, most);
  }
  s->lock.unlock();
}

void record_end() {
  Store* s = g_store;
  std::vector<RecordChunk*> over;
  RecordMemory* memory = nullptr;
  s->lock.lock();
  if (s->profiles && --s->profiles == 0) {
    memory = std::exchange(s->memory, nullptr);
    g_recording.store(0, std::memory_order_relaxed);
    s->session = 0;
    over.swap(s->chunks);
  }
  s->lock.unlock();
  for (RecordChunk* chunk : over) chunk_release(chunk);
  memory_release(memory);
}

RecordSnapshot record_snapshot(uint64_t since) {
  lanes_flush();
  RecordSnapshot out;
  Store* s = g_store;
  std::vector<RecordChunk*> chunks;
  s->lock.lock();
  chunks = s->chunks;
  for (RecordChunk* chunk : chunks) chunk->refs.fetch_add(1, std::memory_order_relaxed);  // the list holds one
  out.tracks = s->tracks;
  out.programs = s->programs;
  out.labels = s->labels;
  out.dropped = s->dropped.load(std::memory_order_relaxed);
  s->lock.unlock();
  for (RecordChunk* chunk : chunks) {
    uint32_t count = chunk->count.load(std::memory_order_acquire);
    if (count && chunk->records[count - 1].end >= since)  // a writer's records end one after the other
      std::copy_if(chunk->records, chunk->records + count, std::back_inserter(out.records),
                   [since](const Record& r) { return r.end >= since; });
    chunk_release(chunk);
  }
  return out;
}

void records_after_fork() {
  g_store = new Store;  // the old one is leaked: its lock may be held by a thread that is gone
  g_recording.store(0, std::memory_order_relaxed);
  lanes_after_fork();
}

}  // namespace hcq
