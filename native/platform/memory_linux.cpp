// Memory of the process on Linux: mappings, pages, and how much there is (platform.hpp).
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "platform/platform.hpp"

namespace hcq {

namespace {

constexpr uint64_t kPage = 4096;

// The first number in a file, 0 where there is none (`max` in control groups).
uint64_t number_in(const char* path, const char* pattern) {
  unsigned long long value = 0;
  char line[256];
  if (FILE* f = std::fopen(path, "re")) {
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, pattern, &value) == 1) break;
    std::fclose(f);
  }
  return value;
}

}  // namespace

void* map_memory(uint64_t bytes, uint64_t alignment) {
  if (bytes > UINT64_MAX / 2) return nullptr;
  void* raw =
      mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  uint64_t start = reinterpret_cast<uint64_t>(raw), aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) munmap(raw, aligned - start);
  uint64_t tail = start + alignment - aligned;
  if (tail) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);  // a hint: failing is no harm
  return reinterpret_cast<void*>(aligned);
}

void* reserve_addresses(uint64_t bytes) {
  void* raw = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return raw == MAP_FAILED ? nullptr : raw;
}

void* map_shared(uint64_t bytes) {
  void* raw = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  uint64_t start = reinterpret_cast<uint64_t>(raw), aligned = (start + bytes - 1) / bytes * bytes;
  if (aligned > start) munmap(raw, aligned - start);
  munmap(reinterpret_cast<void*>(aligned + bytes), start + bytes - aligned);
  auto* at = reinterpret_cast<void*>(aligned);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at) return at;
  munmap(at, bytes);
  return nullptr;
}

void* map_again(void* address, uint64_t bytes) {
  void* again = mremap(address, 0, bytes, MREMAP_MAYMOVE);  // of length 0: a second mapping
  return again == MAP_FAILED ? nullptr : again;
}

void small_pages(void* address, uint64_t bytes) { madvise(address, bytes, MADV_NOHUGEPAGE); }  // a hint too

void unmap_memory(void* address, uint64_t bytes) { munmap(address, bytes); }

void drop_pages(void* address, uint64_t bytes) { madvise(address, bytes, MADV_DONTNEED); }

bool populate_pages(void* address, uint64_t bytes) {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif
  for (;;) {
    if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return false;
    break;  // an older kernel
  }
  // relaxed, but atomic: others may be writing to these pages
  for (uint64_t at = 0; at < bytes; at += kPage)
    __atomic_fetch_or(static_cast<char*>(address) + at, 0, __ATOMIC_RELAXED);
  return true;
}

uint64_t available_memory() {
  uint64_t kib = number_in("/proc/meminfo", "MemAvailable: %llu kB");
  uint64_t available = kib ? kib * 1024 : UINT64_MAX;
  // A container's own limit (control groups, version 2). Page cache can be reclaimed, so it counts as available.
  if (uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "%llu")) {
    uint64_t used = number_in("/sys/fs/cgroup/memory.current", "%llu");
    uint64_t cache = number_in("/sys/fs/cgroup/memory.stat", "inactive_file %llu");
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < available) available = left;
  }
  return available;
}

uint64_t last_level_cache() {
  long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1 where the system doesn't say
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

}  // namespace hcq
