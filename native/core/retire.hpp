// Retirement: what queued work may still use is released only when every queue has passed the position it had at the
// time of the release. Launches therefore touch no reference counts (docs/design/lifetimes.md).
#pragma once
#include <Python.h>

#include <utility>
#include <vector>

#include "core/base.hpp"

namespace hcq {

struct Queue;

// Positions of all queues that had unfinished work. Empty: nothing was queued anywhere.
class Stamp {
 public:
  Stamp() = default;
  Stamp(Stamp&&) noexcept = default;
  Stamp& operator=(Stamp&& other) noexcept {
    std::swap(positions_, other.positions_);  // the other's destructor lets go of what we held
    std::swap(generation_, other.generation_);
    return *this;
  }
  Stamp(const Stamp&) = delete;
  Stamp& operator=(const Stamp&) = delete;
  ~Stamp();

  static Stamp now();   // any thread; no allocation when every queue is idle
  bool passed() const;  // true for an empty one
  bool empty() const { return positions_.empty(); }
  void help() const;  // step the queues it waits for, a little, on this thread (GIL may be held)

 private:
  std::vector<std::pair<Queue*, uint64_t>> positions_;  // holds a reference on each queue
  uint32_t generation_ = g_generation;
};

// Calls fn(p) once all work queued until now has finished; at once when nothing is queued. fn must not need the GIL.
void retire(void (*fn)(void*), void* p);
// Drops the caller's reference to a Python object once all work queued until now has finished. Needs the GIL.
void retire_object(PyObject* object);
// The same, without needing the GIL: the object goes at the next run_retired().
void retire_object_later(PyObject* object);
// Runs what is due. Called by submits, allocations and synchronize; cheap when nothing is pending. Needs the GIL.
void run_retired();

void retire_after_fork();
}  // namespace hcq
