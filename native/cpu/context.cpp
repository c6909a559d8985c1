// The pool of group contexts: made at need, reused for ever, at most one a running thread.
#include "cpu/context.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

namespace hcq {

namespace {

constexpr size_t kGuard = 4096;
// A guard page costs two mappings, of which Linux allows a process some 65,000.
constexpr uint32_t kMaxGuards = 8192;

// Contexts of this process. Another generation's are left as they are (fork), and new ones made.
struct Pool {
  uint32_t generation = g_generation;
  std::mutex growing;  // held while a context is made, never while code runs
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> guards{0};
  std::atomic<Context*> all[kMaxContexts] = {};
};

std::atomic<Pool*> g_pool{nullptr};

Pool& pool() {
  Pool* seen = g_pool.load(std::memory_order_acquire);  // acquire: sees the object that the pointer was stored for
  while (!seen || seen->generation != g_generation) {
    auto* fresh = new Pool;
    // acq_rel: publishes the new object, or sees the one of whoever was faster
    if (g_pool.compare_exchange_strong(seen, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
  }
  return *seen;
}

// The context this thread used last: most often free, and warm.
__thread Context* t_last = nullptr;

bool try_take(Context* context) {
  // acquire: sees what the thread that returned it wrote
  return !context->busy.load(std::memory_order_relaxed) && !context->busy.exchange(true, std::memory_order_acquire);
}

// nullptr when addresses or contexts are used up.
Context* make(Pool& p) {
  std::lock_guard<std::mutex> held(p.growing);
  uint32_t index = p.count.load(std::memory_order_relaxed);  // relaxed: only changed under the lock
  if (index == kMaxContexts) return nullptr;
  // Twice the size holds an aligned area; the rest goes back.
  void* reserved =
      mmap(nullptr, 2 * kContextArea, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto begin = reinterpret_cast<uintptr_t>(reserved);
  uintptr_t aligned = (begin + kContextArea - 1) & ~(kContextArea - 1);
  if (aligned > begin) munmap(reserved, aligned - begin);
  uintptr_t end = begin + 2 * kContextArea, used = aligned + kContextArea;
  if (end > used) munmap(reinterpret_cast<void*>(used), end - used);
  auto* context = reinterpret_cast<Context*>(aligned);
  // A fiber touches a page or two of its stack: a huge page for each would be memory wasted and cleared.
  madvise(context, kScratchBegin, MADV_NOHUGEPAGE);
  mprotect(context->base() + kItemStackBegin, kGuard, PROT_NONE);  // without one, an overflow is found later
  context->index = index;
  context->generation = p.generation;
  context->group.scratch = context->scratch();
  context->busy.store(true, std::memory_order_relaxed);    // relaxed: nobody else knows it yet
  p.all[index].store(context, std::memory_order_release);  // release: its fields are seen by who finds it
  p.count.store(index + 1, std::memory_order_release);     // release: every index below the count is filled
  return context;
}

Context* find_free(Pool& p) {
  uint32_t count = p.count.load(std::memory_order_acquire);  // acquire: pairs with make
  for (uint32_t i = 0; i < count; ++i) {
    Context* context = p.all[i].load(std::memory_order_acquire);  // acquire: pairs with make
    if (try_take(context)) return context;
  }
  return nullptr;
}

}  // namespace

Context* context_take() {
  Context* last = t_last;
  if (last && last->generation == g_generation && try_take(last)) return last;
  Pool& p = pool();
  for (;;) {
    Context* context = find_free(p);
    if (!context) context = make(p);
    if (context) return t_last = context;
    yield_thread();
  }
}

void context_return(Context* context) {
  context->busy.store(false, std::memory_order_release);  // release: the next one sees what this thread wrote
}

bool contexts_possible(std::string* error) {
  Pool& p = pool();
  if (p.count.load(std::memory_order_acquire)) return true;  // acquire: pairs with make
  Context* context = make(p);
  if (!context) {
    if (p.count.load(std::memory_order_acquire)) return true;  // another thread's
    *error = std::string("cannot reserve the stacks that work-items run on: ") + std::strerror(errno);
    return false;
  }
  context_return(context);
  return true;
}

void context_guard(Context* context, uint32_t items) {
  static const bool can = sysconf(_SC_PAGESIZE) == static_cast<long>(kGuard);
  if (!can) return;
  Pool& p = pool();
  // relaxed: a count that only has to be roughly right
  uint32_t wanted = items - context->guarded;
  if (p.guards.fetch_add(wanted, std::memory_order_relaxed) + wanted > kMaxGuards) {
    p.guards.fetch_sub(wanted, std::memory_order_relaxed);
    return;
  }
  for (uint32_t i = context->guarded; i < items; ++i)
    mprotect(context->base() + kItemStackEnd + i * kFiberStack, kGuard, PROT_NONE);
  context->guarded = items;
}

bool context_is_guard(uint64_t address) {
  Pool* p = g_pool.load(std::memory_order_acquire);
  if (!p) return false;
  uint32_t count = p->count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    auto base = reinterpret_cast<uint64_t>(p->all[i].load(std::memory_order_acquire));
    if (address < base || address >= base + kScratchBegin) continue;
    uint64_t offset = address - base;
    if (offset < kItemStackEnd) return offset >= kItemStackBegin && offset < kItemStackBegin + kGuard;
    return (offset - kItemStackEnd) % kFiberStack < kGuard;
  }
  return false;
}

}  // namespace hcq
