// What depends on the operating system. Everything Linux-only in native/ sits behind these functions.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace hcq {

// Sleeps while *word == expected, at most timeout_ns (UINT64_MAX: for ever). Returns false on a time-out or an
// interruption by a signal handler (EINTR), true when woken or the word differed. `shared`: other processes may wake
// it.
bool futex_wait(std::atomic<uint32_t>* word, uint32_t expected, uint64_t timeout_ns, bool shared);
void futex_wake(std::atomic<uint32_t>* word, int count, bool shared);

struct FutexWord {
  std::atomic<uint32_t>* word;
  uint32_t expected;
  bool shared;
};
constexpr unsigned kMostFutexWords = 128;
// Sleeps while every word is as expected, at most timeout_ns. Returns false at once where the kernel can't do that.
bool futex_wait_any(const FutexWord* words, unsigned count, uint64_t timeout_ns);

unsigned usable_cpus();  // affinity mask and cgroup quota, at least 1
struct Processor {
  unsigned number, count;  // number < count
};
// Where this thread runs just now, among those that the process might run on when this was first asked.
Processor this_processor();
// Starts a thread that takes no signals but those its own faults raise: the others are for Python's threads. The first
// is detached. False: the system gives none.
bool start_thread(void (*fn)());
bool start_thread(std::thread* out, std::function<void()> body);
void set_thread_name(const char* name);
uint64_t thread_number();  // the system's for this thread: threading.get_native_id()

// Address space of `bytes`, readable and writable, with no pages yet; nullptr when there is none. Huge pages where the
// system has them.
void* map_memory(uint64_t bytes, uint64_t alignment);
// Address space with nothing behind it: who reads or writes there is stopped. nullptr when there is none.
void* reserve_addresses(uint64_t bytes);
// Memory of whole pages, zero, aligned to its size (a power of two), that map_again() shows at further addresses; a
// forked child shares it. nullptr when there is none.
void* map_shared(uint64_t bytes);
// The same pages at one more address, of memory that is shared; nullptr where it isn't.
void* map_again(void* address, uint64_t bytes);
void small_pages(void* address, uint64_t bytes);  // of a mapping: no huge pages there
void unmap_memory(void* address, uint64_t bytes);
void drop_pages(void* address, uint64_t bytes);  // contents are lost; the address space stays
// Gives whole pages their memory, keeping what is in them; others may be using them meanwhile. False: the system has
// none.
bool populate_pages(void* address, uint64_t bytes);
uint64_t available_memory();  // bytes to be had without pushing the system out of memory; UINT64_MAX: it doesn't say
uint64_t last_level_cache();  // bytes; 0: the system doesn't say

void set_precise_timers();  // this thread's sleeps end when asked, not 50 us later
// Whether a thread of this process, when it wakes, may take the core of one that runs; else it gets a free core, or its
// turn. Left alone where somebody chose how the thread is scheduled.
void set_preempting(uint64_t thread, bool preempting);

}  // namespace hcq
