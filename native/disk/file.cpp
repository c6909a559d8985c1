// Files and the addresses of their bytes. Facts: fstat(2).
#include "disk/file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <vector>

#include "core/retire.hpp"
#include "platform/files.hpp"

namespace hcq {

namespace {
struct Claim {
  File* file;
  uint64_t bytes, count;
};

// The addresses of one file.
struct Window {
  uint64_t bytes;
  std::vector<Claim> claims;
};

// Addresses are given out in rising order, so that one that went stays unknown for long.
constexpr uint64_t kStep = 1 << 16;
// So many to a file, which may be claimed further than at first: two million files.
constexpr uint64_t kWindow = 1ull << 42;

struct Claims {
  std::mutex lock;
  std::map<uint64_t, Window> all;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> by_file;  // the window that new claims of a file are in
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

void files_after_fork() {
  uint64_t next = g_claims->next;  // what the parent gave out stays nobody's here
  g_claims = new Claims;
  g_claims->next = next;
}

File* file_open(int descriptor, const std::string& path, bool writable) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return nullptr;
  auto* f = new File;
  f->descriptor = descriptor;
  f->path = path;
  f->writable = writable;
  f->volume = facts.st_dev;
  // Several nodes can stand for one block device.
  f->identity = S_ISBLK(facts.st_mode) ? std::make_pair(UINT64_MAX, static_cast<uint64_t>(facts.st_rdev))
                                       : std::make_pair(static_cast<uint64_t>(facts.st_dev), facts.st_ino);
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
  if (bytes >= kFileAddresses) return 0;
  Claims* c = g_claims;
  std::lock_guard<std::mutex> guard(c->lock);
  auto known = c->by_file.find(f->identity);
  uint64_t at = known != c->by_file.end() && bytes <= c->all[known->second].bytes ? known->second : 0;
  if (!at) {
    uint64_t room = std::max(bytes, kWindow);
    if (!(at = place(c, room)) && !(at = place(c, room = bytes))) return 0;
    c->all[at].bytes = room;
    c->by_file[f->identity] = at;
  }
  std::vector<Claim>& claims = c->all[at].claims;
  for (Claim& claim : claims)
    if (claim.file == f && claim.bytes == bytes) {
      ++claim.count;
      return at;
    }
  file_retain(f);
  claims.push_back(Claim{f, bytes, 1});
  return at;
}

namespace {
struct Given {
  File* file;
  uint64_t address, bytes;
};

void give_back(void* p) {
  Given given = *static_cast<Given*>(p);
  delete static_cast<Given*>(p);
  {
    Claims* c = g_claims;
    std::lock_guard<std::mutex> guard(c->lock);
    auto window = c->all.find(given.address);
    if (window == c->all.end()) return;  // in a forked child: the parent's
    std::vector<Claim>& claims = window->second.claims;
    auto claim = std::find_if(claims.begin(), claims.end(),
                              [&](const Claim& k) { return k.file == given.file && k.bytes == given.bytes; });
    if (claim == claims.end() || --claim->count) return;
    claims.erase(claim);
    if (claims.empty()) {
      auto known = c->by_file.find(given.file->identity);
      if (known != c->by_file.end() && known->second == given.address) c->by_file.erase(known);
      c->all.erase(window);
    }
  }
  file_release(given.file);
}
}  // namespace

void file_unclaim(File* f, uint64_t address, uint64_t bytes) { retire(give_back, new Given{f, address, bytes}); }

File* file_at(uint64_t address, uint64_t bytes, bool write, uint64_t* offset) {
  Claims* c = g_claims;
  std::lock_guard<std::mutex> guard(c->lock);
  auto after = c->all.upper_bound(address);
  if (after == c->all.begin()) return nullptr;
  auto window = std::prev(after);
  uint64_t at = address - window->first;
  File* found = nullptr;
  for (const Claim& claim : window->second.claims) {
    if (at > claim.bytes || bytes > claim.bytes - at) continue;
    if (!found || (write && claim.file->writable)) found = claim.file;
  }
  if (!found) return nullptr;
  *offset = at;
  file_retain(found);
  return found;
}

uint64_t files_open() { return g_open.load(std::memory_order_relaxed); }

}  // namespace hcq
