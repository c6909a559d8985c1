// Copies one end of which is a file: what the command processor knows of them. native/disk carries them out.
#pragma once
#include "core/packet.hpp"

namespace hcq {

struct Queue;

// Addresses from here on are no memory: native/disk gives them to the bytes of files. No process has memory there,
// since user space ends below.
constexpr uint64_t kFileAddresses = 1ull << 63;
inline bool is_file_address(uint64_t address) { return address >= kFileAddresses; }

// Starts a copy command of q, under its step lock; doesn't block. True: it is over, and `error` is 0 or the error word
// of why it failed. False: it is under way, and some thread calls file_copy_over when it is done; the step lock, and a
// reference on q, are that thread's then.
extern bool (*g_start_file_copy)(Queue* q, const CopyPacket& packet, uint64_t* error);

// Ends the copy command that q is at, lets go of its step lock and goes on with the queue for a moment.
void file_copy_over(Queue* q, uint64_t error);

}  // namespace hcq
