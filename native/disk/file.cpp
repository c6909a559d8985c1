// Files and the addresses of their bytes. Facts: fstat(2).
#include "disk/file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "core/retire.hpp"
#include "platform/files.hpp"

namespace hcq {

namespace {
struct Claim {
  uint64_t bytes;
  File* file;
};

// Addresses are given out in rising order, so that one that went stays unknown for long.
constexpr uint64_t kStep = 1 << 16;

struct Claims {
  std::mutex lock;
  std::map<uint64_t, Claim> all;
  uint64_t next = kFileAddresses + kStep;
};
Claims* g_claims = new Claims;
std::atomic<uint64_t> g_open{0};

// Where `bytes` and a gap are free, from the last place on, then from the first. Under the lock.
uint64_t place(Claims* c, uint64_t bytes) {
  for (uint64_t from : {c->next, kFileAddresses + kStep}) {
    for (uint64_t at = from;;) {
      uint64_t end = at + bytes + kStep;
      if (end < at) break;  // past the last address
      auto after = c->all.lower_bound(at);
      if (after != c->all.begin()) {
        auto before = std::prev(after);
        uint64_t taken = before->first + before->second.bytes + kStep;
        if (taken > at) {
          at = (taken + kStep - 1) & ~(kStep - 1);
          continue;
        }
      }
      if (after == c->all.end() || after->first >= end) {
        c->next = (end + kStep - 1) & ~(kStep - 1);
        if (c->next < kFileAddresses) c->next = kFileAddresses + kStep;
        return at;
      }
      at = (after->first + after->second.bytes + 2 * kStep - 1) & ~(kStep - 1);
      if (at < kFileAddresses) break;
    }
  }
  return 0;
}
}  // namespace

void files_after_fork() { g_claims = new Claims; }

File* file_open(int descriptor, const std::string& path, bool writable) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return nullptr;
  auto* f = new File;
  f->descriptor = descriptor;
  f->path = path;
  f->writable = writable;
  f->volume = facts.st_dev;
  g_open.fetch_add(1, std::memory_order_relaxed);
  return f;
}

void file_retain(File* f) { f->refs.fetch_add(1, std::memory_order_relaxed); }

void file_release(File* f) {
  // acq_rel: the last holder sees the others' writes before freeing
  if (f->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  close(f->descriptor);
  if (f->direct >= 0) close(f->direct);
  g_open.fetch_sub(1, std::memory_order_relaxed);
  delete f;
}

uint64_t file_size(const File& f, int* error) {
  struct stat facts;
  *error = fstat(f.descriptor, &facts) == 0 ? 0 : errno;
  if (*error) return 0;
  if (S_ISREG(facts.st_mode)) return static_cast<uint64_t>(facts.st_size);
  off_t end = lseek(f.descriptor, 0, SEEK_END);  // of a block device; nobody reads at the descriptor's position
  if (end < 0) *error = errno;
  return end < 0 ? 0 : static_cast<uint64_t>(end);
}

bool file_has_direct(File* f) {
  std::lock_guard<SpinLock> guard(f->lock);
  if (!f->direct_tried) {
    f->direct_tried = true;
    f->direct = open_direct(f->descriptor, &f->offset_alignment, &f->memory_alignment);
  }
  return f->direct >= 0 && !f->direct_refused;
}

void file_refuse_direct(File* f) {
  std::lock_guard<SpinLock> guard(f->lock);
  f->direct_refused = true;  // the descriptor stays until the file goes: reads under way use it
}

uint64_t file_claim(File* f, uint64_t bytes) {
  std::lock_guard<std::mutex> guard(g_claims->lock);
  uint64_t at = bytes < kFileAddresses ? place(g_claims, bytes) : 0;
  if (!at) return 0;
  file_retain(f);
  g_claims->all[at] = Claim{bytes, f};
  return at;
}

void file_unclaim(uint64_t address) {
  retire(
      [](void* p) {
        File* file = nullptr;
        {
          std::lock_guard<std::mutex> guard(g_claims->lock);
          auto found = g_claims->all.find(reinterpret_cast<uint64_t>(p));
          if (found == g_claims->all.end()) return;  // in a forked child: the parent's
          file = found->second.file;
          g_claims->all.erase(found);
        }
        file_release(file);
      },
      reinterpret_cast<void*>(address));
}

File* file_at(uint64_t address, uint64_t bytes, uint64_t* offset) {
  std::lock_guard<std::mutex> guard(g_claims->lock);
  auto after = g_claims->all.upper_bound(address);
  if (after == g_claims->all.begin()) return nullptr;
  auto found = std::prev(after);
  uint64_t at = address - found->first;
  if (at > found->second.bytes || bytes > found->second.bytes - at) return nullptr;
  *offset = at;
  file_retain(found->second.file);
  return found->second.file;
}

uint64_t files_open() { return g_open.load(std::memory_order_relaxed); }

}  // namespace hcq
