// One read of neighbouring bytes of a file into many pieces of memory.
#pragma once
#include <sys/uio.h>

#include <cstdint>
#include <vector>

namespace hcq {

// Fills the parts, one after the other, with what the file has from `offset` on, on this thread; short reads and EINTR
// are gone on with. Bytes read; fewer than the parts have where *error is an errno or kPastEnd. Changes the parts.
uint64_t scatter_bytes(int descriptor, std::vector<iovec>* parts, uint64_t offset, int* error);

}  // namespace hcq
