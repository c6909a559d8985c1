// The store of records: chunks, side tables, sessions (record.hpp).
#include "core/record.hpp"

#include <algorithm>
#include <cstddef>
#include <new>

#include "core/record_lanes.hpp"
#include "platform/platform.hpp"

namespace hcq {

std::atomic<uint64_t> g_recording{0};

namespace {
// A writer's chunks grow: most write little, and who writes much meets no page faults in memory that comes at once.
// No chunk is more than a quarter of the store, so that a small one has room for several writers.
constexpr uint64_t kLeastChunk = 4 << 10, kFirstChunk = 64 << 10, kLargestChunk = 2 << 20;

struct Store {
  SpinLock lock;  // all below; held briefly, save while a chunk is made
  uint64_t session = 0;
  uint64_t bytes = 0, most_bytes = 0;
  uint32_t profiles = 0;
  std::vector<RecordChunk*> chunks;
  std::vector<RecordTrack> tracks;
  std::unordered_map<uint64_t, std::string> programs;
  std::vector<std::string> labels;
  std::unordered_map<std::string, uint64_t> label_numbers;
  std::atomic<uint64_t> dropped{0};
};
Store* g_store = new Store;
std::atomic<uint64_t> g_sessions{0};  // never the same number twice, in children neither

void chunk_release(RecordChunk* chunk) {
  // acq_rel: the last holder frees what the other one wrote
  if (chunk->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) unmap_memory(chunk, chunk->bytes);
}

// A fresh chunk; null when the session is over, the store is full or there is no memory.
RecordChunk* chunk_make(uint64_t session, uint64_t bytes) {
  Store* s = g_store;
  s->lock.lock();
  bool ours = session && s->session == session;
  while (bytes > kLeastChunk && (bytes > s->most_bytes / 4 || s->bytes + bytes > s->most_bytes)) bytes /= 2;
  bool fits = ours && s->bytes + bytes <= s->most_bytes;
  if (fits) s->bytes += bytes;
  if (ours && !fits) s->dropped.fetch_add(1, std::memory_order_relaxed);
  s->lock.unlock();
  if (!fits) return nullptr;
  void* memory = map_memory(bytes, bytes);
  if (!memory) {
    s->dropped.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  populate_pages(memory, bytes);
  auto* chunk = new (memory) RecordChunk;
  chunk->session = session;
  chunk->bytes = bytes;
  chunk->capacity = static_cast<uint32_t>((bytes - offsetof(RecordChunk, records)) / sizeof(Record));
  bool listed = false;
  s->lock.lock();
  if (s->session == session) {
    try {
      s->chunks.push_back(chunk);
      listed = true;
    } catch (const std::bad_alloc&) {
      s->dropped.fetch_add(1, std::memory_order_relaxed);
    }
  }
  s->lock.unlock();
  if (listed) return chunk;
  unmap_memory(memory, bytes);
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
  s->lock.lock();
  uint64_t most = std::min(most_records, UINT64_MAX / sizeof(Record)) * sizeof(Record);
  if (s->profiles++ == 0) {
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
  s->lock.lock();
  if (s->profiles && --s->profiles == 0) {
    g_recording.store(0, std::memory_order_relaxed);
    s->session = 0;
    over.swap(s->chunks);
  }
  s->lock.unlock();
  for (RecordChunk* chunk : over) chunk_release(chunk);
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
