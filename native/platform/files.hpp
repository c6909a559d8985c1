// What reading and writing files needs of the operating system beyond pread and pwrite.
#pragma once
#include <cstdint>

namespace hcq {

// Reads only what the system holds in memory already. Bytes read, 0 where that is none (or at the file's end), or a
// negative errno.
int64_t read_cached(int descriptor, void* to, uint64_t bytes, uint64_t offset);
// How many of these bytes the system holds in memory; UINT64_MAX: it doesn't say.
uint64_t cached_bytes(int descriptor, uint64_t offset, uint64_t bytes);
// Another descriptor on the same file whose reads bypass that memory, and what their offsets, sizes and addresses must
// be multiples of. -1 where the file system has no such thing.
int open_direct(int descriptor, uint32_t* offset_alignment, uint32_t* memory_alignment);

// The first bytes of a file as memory that is shared with all who map them; null with errno. unmap_memory undoes it.
void* map_file(int descriptor, uint64_t bytes, bool writable);

}  // namespace hcq
