// Facts: preadv(2), and IOV_MAX of 1024 on Linux.
#include "disk/scatter.hpp"

#include <algorithm>
#include <cerrno>

#include "disk/transfer.hpp"

namespace hcq {

namespace {
constexpr size_t kMostParts = 1024;          // that one call fills
constexpr uint64_t kMostBytes = 256u << 20;  // so that a call is never more than the system moves at once
}  // namespace

uint64_t scatter_bytes(int descriptor, std::vector<iovec>* parts, uint64_t offset, int* error) {
  uint64_t done = 0;
  *error = 0;
  for (iovec *at = parts->data(), *end = at + parts->size(); at < end;) {
    if (!at->iov_len) {
      ++at;
      continue;
    }
    int count = 0;
    uint64_t bytes = 0;
    while (at + count < end && count < static_cast<int>(kMostParts) && bytes < kMostBytes) bytes += at[count++].iov_len;
    uint64_t most = std::min<uint64_t>(bytes, 1 << 30);
    int failed = disturbed(&most);
    ssize_t moved = -1;
    if (!failed) {
      iovec less{at->iov_base, std::min<uint64_t>(at->iov_len, most)};  // what is left of a call that moves less
      bool all = most == bytes;
      moved = preadv(descriptor, all ? at : &less, all ? count : 1, static_cast<off_t>(offset + done));
      if (moved < 0) failed = errno;
    }
    if (failed == EINTR || failed == EAGAIN) continue;
    if (failed || !moved) {
      *error = failed ? failed : kPastEnd;
      break;
    }
    done += static_cast<uint64_t>(moved);
    for (auto left = static_cast<uint64_t>(moved); left;) {
      uint64_t n = std::min<uint64_t>(left, at->iov_len);
      at->iov_base = static_cast<uint8_t*>(at->iov_base) + n;
      at->iov_len -= n;
      left -= n;
      if (!at->iov_len) ++at;
    }
  }
  return done;
}

}  // namespace hcq
