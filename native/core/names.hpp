// Names of programs by number, for who looks at what has run: the programs themselves may be gone by then. And the lock
// that keeps what packets name for as long as somebody reads packets that others run.
#pragma once
#include <string>

#include "core/base.hpp"

namespace hcq {

uint64_t program_named(const std::string& name);  // a fresh number for a program of that name
void program_forgotten(uint64_t number);          // it is gone; the last thousand or so names are still known
std::string program_name(uint64_t number);        // "a program that is gone" where it is not known any more

// Held while what packets point at is freed: programs, bound commands, segments. And by who reads packets of a queue
// that another thread runs. Never while taking another lock that is held for long.
extern SpinLock* g_freeing;
class Freeing {
 public:
  Freeing() : lock_(g_freeing) { lock_->lock(); }
  ~Freeing() { lock_->unlock(); }
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;

 private:
  SpinLock* lock_;
};

void names_after_fork();
}  // namespace hcq
