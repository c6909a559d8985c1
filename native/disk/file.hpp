// Open files of the DISK devices as the command processor's copies see them: addresses that stand for their bytes.
#pragma once
#include <string>
#include <utility>

#include "core/base.hpp"
#include "core/file_copy.hpp"

namespace hcq {

// A file, whose descriptor this owns. Reference counted: by its Python object, its claims and transfers under way.
struct File {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  int descriptor = -1;
  bool writable = false;
  uint64_t volume = 0;                     // the number of the file system it is on
  std::pair<uint64_t, uint64_t> identity;  // which file it is, whatever led to it
  std::string path;
  SpinLock lock;  // of those below
  bool direct_tried = false, direct_refused = false;
  int direct = -1;                                      // another descriptor, for direct I/O; closed with the file
  uint32_t offset_alignment = 1, memory_alignment = 1;  // what that needs
};

File* file_open(int descriptor, const std::string& path, bool writable);  // null: errno says why
void file_retain(File*);
void file_release(File*);
uint64_t file_size(const File&, int* error);
bool file_has_direct(File*);     // opens the descriptor for direct I/O at the first call
void file_refuse_direct(File*);  // it failed where it should not have: never again
void files_after_fork();

// Addresses for the first `bytes` of a file; 0: there are none left. All who claim one file, by whatever name, have the
// same ones, so that equal bytes have equal addresses; unless the file outgrew what the first of them asked for.
uint64_t file_claim(File*, uint64_t bytes);
// Gives a claim of so many bytes back, once queued work has passed.
void file_unclaim(File*, uint64_t address, uint64_t bytes);
// A file at an address, one that may be written if there is one and `write`, with a reference, and which byte of it
// that is; null where nobody claims these bytes.
File* file_at(uint64_t address, uint64_t bytes, bool write, uint64_t* offset);

uint64_t files_open();  // how many, for reports

}  // namespace hcq
