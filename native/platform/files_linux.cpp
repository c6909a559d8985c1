// Linux: reads from the page cache alone, how much is there, direct I/O. Facts: preadv2(2), cachestat (Linux 6.5,
// mm/filemap.c), statx(2) with STATX_DIOALIGN (Linux 6.1), open(2) on O_DIRECT, proc(5) on /proc/self/fd.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "platform/files.hpp"

namespace hcq {

int64_t read_cached(int descriptor, void* to, uint64_t bytes, uint64_t offset) {
  constexpr int kNoWait = 8;  // RWF_NOWAIT
  iovec part{to, bytes};
  ssize_t n = preadv2(descriptor, &part, 1, static_cast<off_t>(offset), kNoWait);
  if (n >= 0) return n;
  bool none = errno == EAGAIN || errno == EOPNOTSUPP || errno == EINTR || errno == ENOSYS;
  return none ? 0 : -errno;
}

uint64_t cached_bytes(int descriptor, uint64_t offset, uint64_t bytes) {
  struct Range {
    uint64_t offset, length;
  } range{offset, bytes};
  struct Pages {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages{};
  constexpr long kSyscall = 451;  // cachestat: the same number on all architectures
  if (syscall(kSyscall, descriptor, &range, &pages, 0) != 0) return UINT64_MAX;
  return pages.cached * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int open_direct(int descriptor, uint32_t* offset_alignment, uint32_t* memory_alignment) {
  *offset_alignment = *memory_alignment = 4096;  // suffices for every file system there is
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 && facts.stx_mask & STATX_DIOALIGN) {
    if (!facts.stx_dio_offset_align) return -1;
    *offset_alignment = facts.stx_dio_offset_align;
    *memory_alignment = facts.stx_dio_mem_align;
  }
#endif
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  return open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

void* map_file(int descriptor, uint64_t bytes, bool writable) {
  void* at = mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace hcq
