// Queues: making, writing and closing them. Queue records are recycled, never freed: a stale pointer to one (a signal's
// `setter`, say) can be asked whether it is live, and is at worst another queue, which is harmless to step.
#include "core/queue.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "core/device.hpp"
#include "core/interface.hpp"
#include "core/names.hpp"
#include "core/queue_list.hpp"

namespace hcq {

namespace {
constexpr uint32_t kKeptSegments = 16;  // free segments a queue keeps: 1 MiB
std::atomic<uint64_t> g_limit{64ull << 20};
std::atomic<uint64_t> g_next_id{1};

struct Pool {
  SpinLock lock;
  std::vector<Queue*> recycled;
};
Pool* g_pool = new Pool;

Segment* segment_make() {
  return static_cast<Segment*>(std::aligned_alloc(alignof(Segment), sizeof(Segment)));  // or null
}

// queue_room() saw to it that there is one.
Segment* segment_take(Queue* q) {
  q->segments_lock.lock();
  Segment* s = q->free_segments;
  q->free_segments = s->next;
  --q->free_count;
  q->segments_lock.unlock();
  s->next = nullptr;
  return s;
}
}  // namespace

QueueList* g_queues = new QueueList;

void queues_after_fork() {
  g_pool = new Pool;  // the old ones are leaked: their locks may be held by threads that are gone
  g_queues = new QueueList;
}

uint64_t queue_limit_bytes() { return g_limit.load(std::memory_order_relaxed); }
void queue_set_limit(uint64_t bytes) {
  uint64_t least = 2 * sizeof(Segment);
  g_limit.store(bytes < least ? least : bytes, std::memory_order_relaxed);
}

Queue* queue_create(Device* device, QueueKind kind, std::string name) {
  Queue* q = nullptr;
  g_pool->lock.lock();
  if (!g_pool->recycled.empty()) {
    q = g_pool->recycled.back();
    g_pool->recycled.pop_back();
  }
  g_pool->lock.unlock();
  if (q) {
    // Not made anew in place: somebody with a stale pointer may be looking at the count, which is 0 until the end.
    q->write_offset = q->execs = 0;
    q->read_offset = q->nested_offset = 0;
    q->write_position = q->records = q->dropping = q->job_start = 0;
    q->read_position = q->base = q->last_program = q->last_record = q->last_signal = q->last_value = 0;
    q->free_count = q->segment_count = 0;
    q->nested = nullptr;
    q->job = nullptr;
    // relaxed: published by `refs` and by the list of queues
    q->tail.store(0, std::memory_order_relaxed);
    q->state.store(kIdle, std::memory_order_relaxed);
    q->blocked.store(false, std::memory_order_relaxed);
    q->running.store(nullptr, std::memory_order_relaxed);
    q->completed.store(0, std::memory_order_relaxed);
    q->hung.store(UINT64_MAX, std::memory_order_relaxed);
    q->done.value.store(0, std::memory_order_relaxed);
  } else {
    q = new Queue();
    q->refs.store(0, std::memory_order_relaxed);
  }
  q->id = g_next_id.fetch_add(1, std::memory_order_relaxed);
  q->device = device;
  q->flights = device->interface ? flights_create(device->interface) : nullptr;
  q->kind = kind;
  q->name = std::move(name);
  q->refs.store(1, std::memory_order_release);  // all of the above is seen by who takes a further reference
  g_queues->lock.lock();
  g_queues->all.push_back(q);
  g_queues->lock.unlock();
  return q;
}

void queue_retain(Queue* q) { q->refs.fetch_add(1, std::memory_order_relaxed); }

bool queue_retain_live(Queue* q) {
  if (!q || q->generation != g_generation) return false;
  uint32_t refs = q->refs.load(std::memory_order_relaxed);
  while (refs)  // acquire: pairs with the end of queue_create()
    if (q->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acquire)) return true;
  return false;
}

void queue_release(Queue* q) {
  if (q->generation != g_generation) return;
  // acq_rel: the last holder sees what the others did to the queue
  if (q->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  while (q->free_segments) {
    Segment* next = q->free_segments->next;
    std::free(q->free_segments);
    q->free_segments = next;
  }
  std::free(q->read_segment);
  if (q->flights) flights_close(q);
  record_slot_drop(q->record_slot);
  q->record_slot = RecordSlot{};
  q->record_clock = 0;
  q->write_segment = nullptr;
  q->read_segment = nullptr;
  g_pool->lock.lock();
  g_pool->recycled.push_back(q);
  g_pool->lock.unlock();
}

void queue_close(Queue* q) {
  g_queues->lock.lock();
  for (size_t i = 0; i < g_queues->all.size(); ++i) {
    if (g_queues->all[i] != q) continue;
    g_queues->all[i] = g_queues->all.back();
    g_queues->all.pop_back();
    break;
  }
  g_queues->lock.unlock();
  queue_release(q);
}

Room queue_room(Queue* q, uint64_t units, uint32_t largest) {
  uint32_t here = q->write_segment ? kSegmentCapacity - q->write_offset : 0;
  if (units <= here) return Room::yes;
  uint64_t usable = kSegmentCapacity - largest + 1;  // the end of a segment may stay empty
  uint64_t needed = (units + usable - 1) / usable;
  q->segments_lock.lock();
  uint64_t free = q->free_count, held = q->segment_count - free;
  q->segments_lock.unlock();
  uint64_t most = queue_limit_bytes() / sizeof(Segment);
  if (held + needed > most) return needed + 1 > most ? Room::never : Room::full;  // an empty queue still holds one
  for (; free < needed; ++free) {
    Segment* s = segment_make();
    if (!s) return Room::no_memory;  // those made so far stay for the next one
    q->segments_lock.lock();
    s->next = q->free_segments;
    q->free_segments = s;
    ++q->free_count;
    ++q->segment_count;
    q->segments_lock.unlock();
  }
  return Room::yes;
}

uint8_t* queue_write(Queue* q, uint32_t units) {
  if (!q->write_segment) {
    q->write_segment = segment_take(q);
    q->read_segment = q->write_segment;  // published with `tail`
    q->write_offset = 0;
    q->read_offset = 0;
  } else if (q->write_offset + units > kSegmentCapacity) {
    Segment* next = segment_take(q);
    auto* link = reinterpret_cast<PacketHeader*>(q->write_segment->data + q->write_offset * kUnit);
    link->type = PacketType::link;
    link->units = 1;
    link->record = reinterpret_cast<uint64_t>(next);
    q->write_segment = next;
    q->write_offset = 0;
  }
  uint8_t* packet = q->write_segment->data + q->write_offset * kUnit;
  q->write_offset += units;
  q->write_position += units;
  return packet;
}

void queue_give_segment(Queue* q, Segment* s) {
  q->segments_lock.lock();
  bool keep = q->free_count < kKeptSegments;
  if (keep) {
    s->next = q->free_segments;
    q->free_segments = s;
    ++q->free_count;
  } else {
    --q->segment_count;
  }
  q->segments_lock.unlock();
  if (keep) return;
  Freeing freeing;
  std::free(s);
}

// A report may look at commands while they are patched (walk), and shows an older or a mixed value at worst: so every
// store is atomic, and relaxed, since nothing is ordered by it.
template <typename T>
static void patch_store(T& at, T value) {
  __atomic_store_n(&at, value, __ATOMIC_RELAXED);
}

static void patch_bytes(uint8_t* at, uint64_t content, size_t bytes) {  // little-endian, as every target here
  auto place = reinterpret_cast<uintptr_t>(at);
  if (bytes == 8 && place % 8 == 0) return patch_store(*reinterpret_cast<uint64_t*>(at), content);
  if (bytes == 4 && place % 4 == 0)
    return patch_store(*reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(content));
  for (size_t i = 0; i < bytes; ++i) patch_store(at[i], static_cast<uint8_t>(content >> (8 * i)));
}

void apply_patch(BoundCommands* commands, const Patch& patch) {
  if (patch.what & kPatchBytes) {
    patch_bytes(commands->memory + patch.offset, patch.content, patch.what / kPatchByte);
    return;
  }
  if (!(patch.what & kPatchSlot))
    return apply_patch(commands->memory + static_cast<size_t>(patch.offset) * kUnit, patch);
  for (const Place& place : commands->slots[patch.offset]) {
    uint64_t content = patch.content + place.addend;
    patch_bytes(commands->memory + place.offset, content, place.bytes);
  }
}

void apply_patch(uint8_t* packet, const Patch& patch) {
  auto* header = reinterpret_cast<PacketHeader*>(packet);
  switch (header->type) {
    case PacketType::signal:
    case PacketType::wait:
    case PacketType::timestamp: {
      auto* p = reinterpret_cast<SignalPacket*>(packet);
      if (patch.what & kPatchSignal) patch_store(p->signal, patch.signal.signal);
      if (patch.what & kPatchValue) patch_store(p->value, patch.signal.value);
      break;
    }
    case PacketType::exec: {
      auto* p = reinterpret_cast<ExecPacket*>(packet);
      for (int i = 0; i < 3; ++i) {
        if (patch.what & kPatchGroups) patch_store(p->groups[i], patch.sizes.groups[i]);
        if (patch.what & kPatchItems) patch_store(p->items[i], patch.sizes.items[i]);
      }
      break;
    }
    case PacketType::copy: {
      auto* p = reinterpret_cast<CopyPacket*>(packet);
      if (patch.what & kPatchDest) patch_store(p->destination, patch.copy.destination);
      if (patch.what & kPatchSource) patch_store(p->source, patch.copy.source);
      break;
    }
    default:
      break;
  }
}

}  // namespace hcq
