// One copy between a file and memory, or two files, that is under way: cut into pieces, carried out by an engine.
#pragma once
#include "core/queue.hpp"
#include "disk/file.hpp"

namespace hcq {

// How a file is read; docs/design/disk.md says when which.
enum class Way : uint8_t { cached, plain, deep, direct };
constexpr int kWays = 4;

struct Transfer {
  Queue* queue = nullptr;  // whose command it is
  File* file = nullptr;
  uint64_t offset = 0;
  uint8_t* memory = nullptr;
  File* from = nullptr;  // a copy between files: from here, at `from_offset`; no memory
  uint64_t from_offset = 0;
  uint64_t bytes = 0;
  bool writes = false;

  // Under the engines' lock.
  Way way = Way::plain;
  uint64_t next = 0;    // the first byte that no piece has
  uint64_t limit = 0;   // pieces end here, while ways are tried
  unsigned trial = 0;   // the way that is tried
  uint64_t tried = 0;   // bytes that trials took
  uint64_t began = 0;   // ns: the trial, else all of it
  unsigned flying = 0;  // pieces under way
  int error = 0;        // errno of the first piece that failed; kPastEnd
  uint64_t failed_at = 0;
};
constexpr int kPastEnd = -1;

struct Piece {
  Transfer* transfer;
  uint64_t at, bytes;  // within the transfer
  bool direct;
};

// Under the engines' lock. The next piece to start, where there is one; it counts as under way.
bool take_piece(Transfer*, Piece*);
// Under the engines' lock: a piece has ended. True: so has the transfer; then, without the lock, transfer_over().
bool end_piece(const Piece&, int error, uint64_t failed_at);
void transfer_over(Transfer*);

// The processor's g_start_file_copy.
bool start_file_copy(Queue* q, const CopyPacket& packet, uint64_t* error);

// Moves all of a piece on this thread; short reads and EINTR are gone on with. 0, an errno, or kPastEnd, and where.
int move_piece(const Piece&, uint64_t* failed_at);
// The same for whoever has a descriptor and memory. Moves up to `bytes`; returns how many, with *error where fewer.
uint64_t move_bytes(int descriptor, uint8_t* memory, uint64_t bytes, uint64_t offset, bool write, int* error);

// For tests: every read goes this way, -1 for none; and how many pieces were read past the page cache.
void force_way(int way);
uint64_t direct_pieces();

// What tests do to system calls: the next `calls` move no more than `most` bytes, or fail with `error`.
void disturb(uint64_t calls, uint64_t most, int error);
// Before a system call that is to move *bytes: lessens them. Not 0: the call is to fail with that errno.
int disturbed(uint64_t* bytes);

}  // namespace hcq
