// A ring of reads that the kernel carries out by itself, many at a time. One thread uses it.
#pragma once
#include <cstdint>
#include <vector>

namespace hcq {

class ReadRing {
 public:
  struct Ended {
    uint64_t tag;
    int32_t result;  // bytes, or a negative errno
  };
  // Null where the system has none, or refuses it.
  static ReadRing* open(unsigned depth);
  ~ReadRing();
  ReadRing(const ReadRing&) = delete;
  ReadRing& operator=(const ReadRing&) = delete;

  // Adds a read; at most `depth` may be under way. It starts at the next wait().
  void read(int descriptor, void* to, uint32_t bytes, uint64_t offset, uint64_t tag);
  // Starts what was added, sleeps until a read has ended or wake() was called, and gives what has ended.
  void wait(std::vector<Ended>* ended);
  void wake();            // any thread
  void close_in_child();  // after fork: the parent's ring is left alone

 private:
  ReadRing() = default;
  int ring_ = -1, event_ = -1;
  bool armed_ = false;
  uint64_t event_value_ = 0;
  unsigned entries_ = 0, added_ = 0;
  void *sq_ = nullptr, *cq_ = nullptr, *sqes_ = nullptr;
  uint64_t sq_bytes_ = 0, cq_bytes_ = 0, sqe_bytes_ = 0;
  uint32_t *sq_tail_ = nullptr, *sq_mask_ = nullptr, *sq_array_ = nullptr;
  uint32_t *cq_head_ = nullptr, *cq_tail_ = nullptr, *cq_mask_ = nullptr;
  uint8_t* cqes_ = nullptr;
};

}  // namespace hcq
