// Spans: reservation, commitment in steps, first-fit sub-allocation. What is put there is the loader's.
#include "cpu/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace hcq {

namespace {

constexpr size_t kStep = size_t{1} << 20;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

bool Ranges::take(size_t size, size_t align, size_t* offset) {
  size = round_up(size ? size : 1, 64);
  align = align < 64 ? 64 : align;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    size_t start = round_up(it->first, align);
    size_t end = it->first + it->second;
    if (start > end || end - start < size) continue;
    size_t before = start - it->first;
    if (before)
      it->second = before;
    else
      free_.erase(it);
    if (start + size < end) free_[start + size] = end - start - size;
    *offset = start;
    return true;
  }
  return false;
}

void Ranges::give(size_t offset, size_t size) {
  size = round_up(size ? size : 1, 64);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

Span* Span::create(size_t code_size, size_t data_size, std::string* error) {
  code_size = round_up(code_size, kStep);
  data_size = round_up(data_size, kStep);
  auto* span = new Span(code_size, data_size);
  void* base = mmap(nullptr, code_size + data_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    *error = std::string("cannot reserve addresses for code: ") + std::strerror(errno);
    delete span;
    return nullptr;
  }
  span->base_ = static_cast<uint8_t*>(base);
  // A kernel before 6.3 refuses MFD_EXEC; one that forbids executable memory files refuses both.
  int file = memfd_create("hcq-code", MFD_CLOEXEC | MFD_EXEC);
  if (file < 0) file = memfd_create("hcq-code", MFD_CLOEXEC);
  if (file >= 0) {
    void* alias = mmap(nullptr, code_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (alias != MAP_FAILED) {
      span->file_ = file;
      span->alias_ = static_cast<uint8_t*>(alias);
      if (span->commit_code(kStep)) return span;
      munmap(alias, code_size);
    }
    close(file);
  }
  span->file_ = -1;
  span->alias_ = span->base_;
  span->code_end_ = 0;
  if (span->commit_code(kStep)) return span;
  *error = std::string("cannot make executable memory: ") + std::strerror(errno);
  munmap(base, code_size + data_size);
  delete span;
  return nullptr;
}

bool Span::commit_code(size_t end) {
  if (end <= code_end_) return true;
  end = std::min(round_up(end, kStep), code_size_);
  size_t size = end - code_end_;
  uint8_t* at = base_ + code_end_;
  if (file_ < 0) {
    // Without a second mapping: the only place where memory is writable and executable at once.
    if (mprotect(at, size, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return false;
  } else {
    auto offset = static_cast<off_t>(code_end_);
    if (ftruncate(file_, static_cast<off_t>(end)) != 0) return false;
    if (mmap(alias_ + code_end_, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, offset) == MAP_FAILED ||
        mmap(at, size, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, file_, offset) == MAP_FAILED)
      return false;
  }
  code_end_ = end;
  return true;
}

bool Span::commit_data(size_t end) {
  if (end <= data_end_) return true;
  end = std::min(round_up(end, kStep), data_size_);
  if (mprotect(base_ + code_size_ + data_end_, end - data_end_, PROT_READ | PROT_WRITE) != 0) return false;
  data_end_ = end;
  return true;
}

bool Span::take_code(size_t size, size_t align, Piece* piece) {
  size_t offset;
  if (!code_.take(size, align, &offset)) return false;
  *piece = {base_ + offset, alias_ + offset, size, false};
  if (commit_code(offset + size)) return true;
  give_code(*piece);
  return false;
}

bool Span::take_data(size_t size, size_t align, Piece* piece) {
  size_t offset;
  if (!data_.take(size, align, &offset)) return false;
  uint8_t* at = base_ + code_size_ + offset;
  *piece = {at, at, size, offset >= data_used_};
  if (commit_data(offset + size)) {
    data_used_ = std::max(data_used_, offset + size);
    return true;
  }
  give_data(*piece);
  return false;
}

void Span::give_code(const Piece& piece) { code_.give(static_cast<size_t>(piece.address - base_), piece.size); }

void Span::give_data(const Piece& piece) {
  data_.give(static_cast<size_t>(piece.address - base_) - code_size_, piece.size);
}

}  // namespace hcq
