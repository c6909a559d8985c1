// Linux: io_uring by its three system calls. Facts: io_uring_setup(2), io_uring_enter(2), io_uring(7); structures from
// linux/io_uring.h.
#include "platform/uring.hpp"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#ifdef IORING_FEAT_RW_CUR_POS  // headers of Linux 5.6 or later: before, there was no plain read
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hcq {

namespace {
constexpr uint64_t kWake = UINT64_MAX;  // the tag of the read that wake() ends

void* map_ring(int ring, uint64_t bytes, uint64_t offset) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_DONTFORK);  // a child must not write into its parent's ring
  return at;
}

template <typename T>
T* at(void* base, uint32_t offset) {
  return reinterpret_cast<T*>(static_cast<uint8_t*>(base) + offset);
}
}  // namespace

ReadRing* ReadRing::open(unsigned depth) {
  auto* r = new ReadRing;
  io_uring_params p{};
  p.flags = IORING_SETUP_CLAMP;
  // One more for the read that wake() ends.
  r->ring_ = static_cast<int>(syscall(__NR_io_uring_setup, depth + 1, &p));
  r->event_ = r->ring_ < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  if (r->ring_ < 0 || r->event_ < 0 || !(p.features & IORING_FEAT_RW_CUR_POS)) {
    delete r;
    return nullptr;
  }
  r->entries_ = p.sq_entries;
  r->sq_bytes_ = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
  r->cq_bytes_ = p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe);
  r->sqe_bytes_ = p.sq_entries * sizeof(io_uring_sqe);
  r->sq_ = map_ring(r->ring_, r->sq_bytes_, IORING_OFF_SQ_RING);
  r->cq_ = map_ring(r->ring_, r->cq_bytes_, IORING_OFF_CQ_RING);
  r->sqes_ = map_ring(r->ring_, r->sqe_bytes_, IORING_OFF_SQES);
  if (!r->sq_ || !r->cq_ || !r->sqes_) {
    delete r;
    return nullptr;
  }
  r->sq_tail_ = at<uint32_t>(r->sq_, p.sq_off.tail);
  r->sq_mask_ = at<uint32_t>(r->sq_, p.sq_off.ring_mask);
  r->sq_array_ = at<uint32_t>(r->sq_, p.sq_off.array);
  r->cq_head_ = at<uint32_t>(r->cq_, p.cq_off.head);
  r->cq_tail_ = at<uint32_t>(r->cq_, p.cq_off.tail);
  r->cq_mask_ = at<uint32_t>(r->cq_, p.cq_off.ring_mask);
  r->cqes_ = at<uint8_t>(r->cq_, p.cq_off.cqes);
  return r;
}

ReadRing::~ReadRing() {
  if (sq_) munmap(sq_, sq_bytes_);
  if (cq_) munmap(cq_, cq_bytes_);
  if (sqes_) munmap(sqes_, sqe_bytes_);
  close_in_child();
}

void ReadRing::close_in_child() {
  if (event_ >= 0) close(event_);
  if (ring_ >= 0) close(ring_);
  event_ = ring_ = -1;
}

void ReadRing::read(int descriptor, void* to, uint32_t bytes, uint64_t offset, uint64_t tag) {
  uint32_t tail = *sq_tail_;  // this thread alone writes it
  uint32_t slot = tail & *sq_mask_;
  auto* e = static_cast<io_uring_sqe*>(sqes_) + slot;
  std::memset(e, 0, sizeof *e);
  e->opcode = IORING_OP_READ;
  e->fd = descriptor;
  e->addr = reinterpret_cast<uint64_t>(to);
  e->len = bytes;
  e->off = offset;
  e->user_data = tag;
  sq_array_[slot] = slot;
  __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);  // the kernel sees the entry before the new tail
  ++added_;
}

void ReadRing::wait(std::vector<Ended>* ended) {
  if (!armed_) {
    read(event_, &event_value_, sizeof event_value_, UINT64_MAX, kWake);  // no offset: an eventfd has none
    armed_ = true;
  }
  // EINTR, EAGAIN, EBUSY: the caller comes again.
  long n = syscall(__NR_io_uring_enter, ring_, added_, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
  if (n > 0) added_ -= static_cast<unsigned>(n);
  uint32_t head = *cq_head_;
  for (;;) {
    // acquire: the entry is whole when the tail is seen
    if (head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) break;
    auto* c = reinterpret_cast<io_uring_cqe*>(cqes_) + (head & *cq_mask_);
    if (c->user_data == kWake)
      armed_ = false;
    else
      ended->push_back({c->user_data, c->res});
    ++head;
  }
  __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);  // the kernel may use the entries again
}

void ReadRing::wake() {
  uint64_t one = 1;
  while (write(event_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace hcq

#else
namespace hcq {
ReadRing* ReadRing::open(unsigned) { return nullptr; }
ReadRing::~ReadRing() = default;
void ReadRing::close_in_child() {}
void ReadRing::read(int, void*, uint32_t, uint64_t, uint64_t) {}
void ReadRing::wait(std::vector<Ended>*) {}
void ReadRing::wake() {}
}  // namespace hcq
#endif
