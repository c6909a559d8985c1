// Arenas of 64 MiB hold runs of pages (best fit, coalesced), small ones from their beginning; blocks under a page share
// slabs of 16 pages, one size a slab; what is half an arena or more has a mapping of its own. One mutex guards it all:
// it is held for a search in a tree.
#include "memory/pool.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "core/scheduler.hpp"
#include "platform/platform.hpp"

namespace hcq {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kChunk = 2ull << 20;   // populated at once; a huge page on x86-64 and aarch64
constexpr uint64_t kPortion = 256 << 10;  // populated at once in the first chunks, which have no huge pages
constexpr uint64_t kArena = 64ull << 20;  // bytes of one arena
constexpr uint32_t kPages = kArena / kPage;
constexpr uint32_t kChunks = kArena / kChunk;
constexpr uint32_t kPortions = kArena / kPortion;
constexpr uint32_t kFine = 4;          // chunks without huge pages: a program of small tensors holds what it uses
constexpr uint64_t kBig = kArena / 2;  // from here on a mapping of its own
constexpr uint32_t kSlabPages = 16;
constexpr uint32_t kGrain = 64;  // alignment and step of sizes within slabs
constexpr uint32_t kClasses = kPage / kGrain;
constexpr uint64_t kReserve = 64ull << 20;  // left to the rest of the system when a large block is asked for

// What a `place` points at, in its low bits.
enum Tag : uintptr_t { kSlabTag = 1, kRunTag = 2, kBigTag = 3, kTagMask = 3 };

// Lies in pages of its own, which come zeroed: all members begin as 0, and most of its 80 KiB are never touched.
struct alignas(8) Arena {
  uint8_t* base;
  uint32_t used_pages;
  bool populated[kPortions];
  uint16_t chunk_used[kChunks];  // pages in use, by chunk
  // At the first page of a used run, and at both ends of a free one: its length. `is_free` tells which.
  uint32_t length[kPages];
  bool is_free[kPages];
};
constexpr uint64_t kArenaRecord = (sizeof(Arena) + kPage - 1) / kPage * kPage;

struct Unmap {
  void operator()(Arena* arena) const { unmap_memory(arena, kArenaRecord); }
};

struct alignas(8) Slab {
  Arena* arena;
  uint32_t page;
  uint32_t slot_bytes;
  uint32_t slots;
  uint32_t free_slots;
  uint64_t map[kSlabPages * kPage / kGrain / 64];  // a set bit is a free slot
  Slab* previous = nullptr;                        // list of slabs of this class that have free slots
  Slab* next = nullptr;
  uint8_t* base() const { return arena->base + uint64_t{page} * kPage; }
};

struct alignas(8) Big {
  uint64_t bytes;
};

struct FreeRun {
  uint32_t pages;
  uint8_t* address;
  Arena* arena;
  bool operator<(const FreeRun& o) const { return pages != o.pages ? pages < o.pages : address < o.address; }
};

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

bool fits(uint64_t bytes) {
  uint64_t available = available_memory();
  return available == UINT64_MAX || (available > kReserve && bytes <= available - kReserve);
}

struct Piecewise {
  uint8_t* address;
  uint64_t bytes;
  std::atomic<bool> good{true};
};

// Zeroing pages is as much work as copying: large blocks are shared among threads.
bool populate_large(uint8_t* address, uint64_t bytes) {
  static constexpr uint64_t kPiece = 8ull << 20;
  Piecewise all{address, bytes};
  parallel_for((bytes + kPiece - 1) / kPiece,
               [](void* context, uint64_t i) {
                 Piecewise& p = *static_cast<Piecewise*>(context);
                 // relaxed: read once all pieces are done
                 if (!p.good.load(std::memory_order_relaxed)) return;
                 if (!populate_pages(p.address + i * kPiece, std::min(kPiece, p.bytes - i * kPiece)))
                   p.good.store(false, std::memory_order_relaxed);
               },
               &all);
  return all.good.load(std::memory_order_relaxed);
}

class Pool {
 public:
  const uint32_t generation = g_generation;

  void* alloc(uint64_t size, void** place) {
    if (size >= kBig) return alloc_big(size, place);
    if (size < kPage) return alloc_slot(static_cast<uint32_t>(round_up(size, kGrain)), place);
    Arena* arena;
    uint32_t page;
    Chunks cold;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      if (!take_run(static_cast<uint32_t>(round_up(size, kPage) / kPage), &arena, &page, &cold)) return nullptr;
    }
    *place = tagged(arena, kRunTag);
    void* address = arena->base + uint64_t{page} * kPage;
    if (!warm(cold)) {
      free(address, *place);
      return nullptr;
    }
    return address;
  }

  void free(void* address, void* place) {
    uintptr_t tag = reinterpret_cast<uintptr_t>(place) & kTagMask;
    void* object = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~kTagMask);
    if (tag == kBigTag) {
      Big* big = static_cast<Big*>(object);
      unmap_memory(address, big->bytes);
      std::lock_guard<std::mutex> hold(mutex_);
      big_bytes_ -= big->bytes;
      --bigs_;
      delete big;
      return;
    }
    uint8_t* unmap = nullptr;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      if (tag == kSlabTag)
        unmap = free_slot(static_cast<Slab*>(object), static_cast<uint8_t*>(address));
      else
        unmap = free_run(static_cast<Arena*>(object), page_of(static_cast<Arena*>(object), address));
    }
    if (unmap) unmap_memory(unmap, kArena);
  }

  void trim() {
    std::vector<uint8_t*> unmap;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      for (size_t i = arenas_.size(); i-- > 0;) {
        Arena* arena = arenas_[i].get();
        if (arena->used_pages == 0) {
          unmap.push_back(drop_arena(arena));
          continue;
        }
        // Under the lock, so that nobody is given a chunk while its pages go.
        for (uint32_t c = 0; c < kChunks; ++c)
          if (arena->chunk_used[c] == 0) {
            bool* portion = arena->populated + c * (kChunk / kPortion);
            bool* end = portion + kChunk / kPortion;
            if (std::find(portion, end, true) == end) continue;
            drop_pages(arena->base + c * kChunk, kChunk);
            std::fill(portion, end, false);
          }
      }
    }
    for (uint8_t* base : unmap) unmap_memory(base, kArena);
  }

  PoolStats stats() {
    std::lock_guard<std::mutex> hold(mutex_);
    PoolStats s{big_bytes_ + arenas_.size() * kArena, big_bytes_, big_bytes_, bigs_ + arenas_.size()};
    for (auto& arena : arenas_) {
      s.used += uint64_t{arena->used_pages} * kPage;
      for (bool p : arena->populated) s.populated += p ? kPortion : 0;
    }
    return s;
  }

 private:
  struct Chunks {  // a range of one arena that still has to be faulted in
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
  };

  static void* tagged(void* p, Tag tag) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) | tag); }
  static uint32_t page_of(Arena* arena, void* address) {
    return static_cast<uint32_t>((static_cast<uint8_t*>(address) - arena->base) / kPage);
  }
  static bool warm(const Chunks& cold) { return cold.bytes == 0 || populate_pages(cold.address, cold.bytes); }

  void* alloc_big(uint64_t size, void** place) {
    uint64_t bytes = round_up(size, kPage);
    if (bytes < size || !fits(bytes)) return nullptr;
    uint8_t* address = static_cast<uint8_t*>(map_memory(bytes, kChunk));
    if (!address) return nullptr;
    Big* big = new (std::nothrow) Big{bytes};
    if (!big || !populate_large(address, bytes)) {
      delete big;
      unmap_memory(address, bytes);
      return nullptr;
    }
    std::lock_guard<std::mutex> hold(mutex_);
    big_bytes_ += bytes;
    ++bigs_;
    *place = tagged(big, kBigTag);
    return address;
  }

  void* alloc_slot(uint32_t bytes, void** place) {
    Chunks cold;
    uint8_t* address;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      Slab*& list = slabs_[bytes / kGrain - 1];
      if (!list) {
        Arena* arena;
        uint32_t page;
        if (!take_run(kSlabPages, &arena, &page, &cold)) return nullptr;
        Slab* slab = new Slab{arena, page, bytes, static_cast<uint32_t>(kSlabPages * kPage / bytes), 0, {}};
        slab->free_slots = slab->slots;
        for (uint32_t i = 0; i < slab->slots; ++i) slab->map[i / 64] |= 1ull << (i % 64);
        list = slab;
      }
      Slab* slab = list;
      uint32_t word = 0;
      while (!slab->map[word]) ++word;
      uint32_t bit = static_cast<uint32_t>(__builtin_ctzll(slab->map[word]));
      slab->map[word] &= slab->map[word] - 1;
      if (--slab->free_slots == 0) unlink(slab);
      address = slab->base() + uint64_t{word * 64 + bit} * slab->slot_bytes;
      *place = tagged(slab, kSlabTag);
    }
    if (!warm(cold)) {
      free(address, *place);
      return nullptr;
    }
    return address;
  }

  uint8_t* free_slot(Slab* slab, uint8_t* address) {
    uint32_t slot = static_cast<uint32_t>((address - slab->base()) / slab->slot_bytes);
    slab->map[slot / 64] |= 1ull << (slot % 64);
    if (slab->free_slots++ == 0) {
      Slab*& list = slabs_[slab->slot_bytes / kGrain - 1];
      slab->previous = nullptr;
      slab->next = list;
      if (list) list->previous = slab;
      list = slab;
    }
    if (slab->free_slots < slab->slots) return nullptr;
    unlink(slab);
    uint8_t* unmap = free_run(slab->arena, slab->page);
    delete slab;
    return unmap;
  }

  void unlink(Slab* slab) {
    if (slab->previous)
      slab->previous->next = slab->next;
    else
      slabs_[slab->slot_bytes / kGrain - 1] = slab->next;
    if (slab->next) slab->next->previous = slab->previous;
  }

  bool take_run(uint32_t pages, Arena** out_arena, uint32_t* out_page, Chunks* cold) {
    auto it = free_.lower_bound(FreeRun{pages, nullptr, nullptr});
    if (it == free_.end()) {
      if (!add_arena()) return false;
      it = free_.lower_bound(FreeRun{pages, nullptr, nullptr});
    }
    FreeRun run = *it;
    free_.erase(it);
    Arena* arena = run.arena;
    uint32_t page = page_of(arena, run.address), rest = run.pages - pages;
    arena->is_free[page] = arena->is_free[page + run.pages - 1] = false;
    // Large ones come from the end, where the huge pages are.
    bool large = pages * kPage >= kPortion;
    if (rest) put_free(arena, large ? page : page + pages, rest);
    if (large) page += rest;
    arena->length[page] = pages;
    count(arena, page, pages, 1);
    *cold = missing(arena, uint64_t{page} * kPage, uint64_t{page + pages} * kPage);
    *out_arena = arena;
    *out_page = page;
    return true;
  }

  // Marks what has no pages yet of these bytes as populated, with the whole of each portion or chunk, and returns it.
  static Chunks missing(Arena* arena, uint64_t begin, uint64_t end) {
    constexpr uint64_t kFineEnd = kFine * kChunk;
    begin = begin / (begin < kFineEnd ? kPortion : kChunk) * (begin < kFineEnd ? kPortion : kChunk);
    end = round_up(end, end <= kFineEnd ? kPortion : kChunk);
    uint64_t first = kPortions, last = 0;
    for (uint64_t p = begin / kPortion; p < end / kPortion; ++p) {
      if (arena->populated[p]) continue;
      arena->populated[p] = true;
      first = std::min(first, p);
      last = p;
    }
    if (first == kPortions) return {};
    return Chunks{arena->base + first * kPortion, (last - first + 1) * kPortion};
  }

  // Returns the base of an arena to unmap (outside of the lock), or nullptr.
  uint8_t* free_run(Arena* arena, uint32_t page) {
    uint32_t pages = arena->length[page];
    count(arena, page, pages, -1);
    if (page + pages < kPages && arena->is_free[page + pages]) {
      uint32_t after = arena->length[page + pages];
      take_free(arena, page + pages, after);
      pages += after;
    }
    if (page > 0 && arena->is_free[page - 1]) {
      uint32_t before = arena->length[page - 1];
      take_free(arena, page - before, before);
      page -= before;
      pages += before;
    }
    put_free(arena, page, pages);
    // One empty arena is kept, so that a program that frees and allocates all it has doesn't map each time.
    if (arena->used_pages) return nullptr;
    for (auto& other : arenas_)
      if (other.get() != arena && other->used_pages == 0) return drop_arena(arena);
    return nullptr;
  }

  void put_free(Arena* arena, uint32_t page, uint32_t pages) {
    arena->length[page] = arena->length[page + pages - 1] = pages;
    arena->is_free[page] = arena->is_free[page + pages - 1] = true;
    free_.insert(FreeRun{pages, arena->base + page * kPage, arena});
  }

  void take_free(Arena* arena, uint32_t page, uint32_t pages) {
    free_.erase(FreeRun{pages, arena->base + page * kPage, arena});
    arena->is_free[page] = arena->is_free[page + pages - 1] = false;
  }

  void count(Arena* arena, uint32_t page, uint32_t pages, int sign) {
    constexpr uint32_t kPerChunk = kChunk / kPage;
    arena->used_pages += static_cast<uint32_t>(sign) * pages;
    for (uint32_t at = page, end = page + pages; at < end;) {
      uint32_t stop = std::min((at / kPerChunk + 1) * kPerChunk, end);
      arena->chunk_used[at / kPerChunk] += static_cast<uint16_t>(sign * static_cast<int>(stop - at));
      at = stop;
    }
  }

  bool add_arena() {
    if (!fits(kChunk)) return false;
    std::unique_ptr<Arena, Unmap> record(static_cast<Arena*>(map_memory(kArenaRecord, kPage)));
    uint8_t* base = record ? static_cast<uint8_t*>(map_memory(kArena, kChunk)) : nullptr;
    if (!base) return false;
    small_pages(base, kFine * kChunk);
    Arena* arena = record.get();
    arena->base = base;
    arenas_.push_back(std::move(record));
    put_free(arena, 0, kPages);
    return true;
  }

  uint8_t* drop_arena(Arena* arena) {
    uint8_t* base = arena->base;
    take_free(arena, 0, kPages);
    for (size_t i = 0; i < arenas_.size(); ++i)
      if (arenas_[i].get() == arena) {
        arenas_.erase(arenas_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    return base;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena, Unmap>> arenas_;
  std::set<FreeRun> free_;
  Slab* slabs_[kClasses] = {};
  uint64_t big_bytes_ = 0;
  uint64_t bigs_ = 0;
};

// Replaced by a fresh one in a forked child; the old one is leaked, since its mutex may be held for ever.
std::atomic<Pool*> g_pool{nullptr};

Pool& pool() {
  // acquire: pairs with the exchange of the thread that made it
  Pool* p = g_pool.load(std::memory_order_acquire);
  while (!p || p->generation != g_generation) {
    Pool* fresh = new Pool();
    if (g_pool.compare_exchange_strong(p, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
  }
  return *p;
}

}  // namespace

void* pool_alloc(uint64_t size, void** place) { return pool().alloc(size, place); }
void pool_free(void* address, void* place) { pool().free(address, place); }
void pool_trim() { pool().trim(); }
PoolStats pool_stats() { return pool().stats(); }

}  // namespace hcq
