// Commands that an interface such as OpenCL carries out, where the processor's own threads do on the CPU devices. The
// processor still reads the packets, keeps the signals and stands at waits; what it gives to the interface is in flight
// until that says that it is over (docs/design/opencl.md).
#pragma once
#include <string>

#include "core/packet.hpp"
#include "core/queue.hpp"

namespace hcq {

struct Program;

// A command that an interface has, as that knows it.
struct Command {
  void* event = nullptr;    // null: there is nothing to carry out, it is over once what came before is
  void* scratch = nullptr;  // memory that it needs until then
  bool timed = false;       // somebody will ask when it ran; said before it is given
  Signal* sets = nullptr;   // said before too: what the lane may set to `value` itself behind it
  uint64_t value = 0;
  bool written = false;  // the lane does, before the command is over: the host sets it no more
};

enum class Over : uint8_t { no, yes, failed };

// What an interface does. All but `open` and `close` are called under the step lock of the command's queue, from any
// thread. None touches Python, and none waits for commands. A lane runs its commands in order. Where one fails it says
// why in `error`.
struct Interface {
  void* (*open)(void* context, std::string* error);  // the lane of a queue, or null; at its first command
  void (*close)(void* lane);                         // nothing is in flight there
  bool (*exec)(void* lane, const Program& program, const uint8_t* arguments, const uint32_t groups[3],
               const uint32_t items[3], Command* out, std::string* error);
  bool (*copy)(void* lane, uint64_t destination, uint64_t source, uint64_t bytes, Command* out, std::string* error);
  void (*flush)(void* lane);  // what was given starts
  Over (*over)(const Command& command, std::string* error);
  // When it ran, in ns of CLOCK_MONOTONIC, by the interface alone: that one came after the other is seen to by who
  // asks. It is over, and was given to the interface at `given`.
  void (*times)(const Command& command, uint64_t given, uint64_t* start, uint64_t* end);
  // Has commands_over(q) called, once, when the command is over or failed: by a thread of the interface, or right here.
  bool (*tell)(const Command& command, Queue* q);
  void (*drop)(const Command& command);  // it is over, and nobody asks for it any more
  void (*leave)(void* context);          // the device is gone
  // May be null. A command that does nothing, whose end is the time of what came before it.
  bool (*stamp)(void* lane, Command* out, std::string* error);
  // May be null. Has the lane stand until a command of another lane of the device is over; over itself after that.
  bool (*follow)(void* lane, const Command& other, Command* out, std::string* error);
  // Whether `over` is a look at memory, worth it right after giving a command.
  bool looks_cheaply;
  // May be null. Bound commands from `offset` up to `end`, in units, as one: none of them waits, signals or is timed.
  // False without an error: then they are given one by one.
  bool (*batch)(void* lane, BoundCommands* commands, uint32_t offset, uint32_t end, Command* out, std::string* error);
  // How many commands are worth that, and which flags they may have.
  uint32_t least_batch = 3, batch_flags = kEndOfSubmit | kLabelled;
  // Both may be null. Has a thread that waits sleep in the driver, instead of being woken by a thread that was: until a
  // command is over, by the number that `mark` has for it, or for `ns`. `sleep` is called without the step lock.
  uint64_t (*mark)(const Command&) = nullptr;
  void (*sleep)(void* lane, uint64_t number, uint64_t ns) = nullptr;
  // May be null. Has the lane set `out->sets` behind what it was given last. Where that is over no sooner than this,
  // `out->event` stays null. False: the host sets it.
  bool (*signal)(void* lane, Command* out) = nullptr;
  // Both may be null: then `over` says which command failed. Else it may have been any that had not passed when the
  // device broke; what the device's context says of that, if it did.
  bool (*passed)(const Command& command) = nullptr;
  bool (*broken)(void* context, std::string* error) = nullptr;
};

// What stands between a queue's packets and its interface (flights.hpp). Under the step lock, but for its atomics.
struct Flights;
Flights* flights_create(const Interface* interface);
void flights_close(Queue* q);  // the queue's last reference went

// Given commands and what is to follow them, of a queue of an interface.
enum class Gave : uint8_t { yes, full, lost };
Gave flights_exec(Queue* q, uint8_t* packet, const uint8_t* arguments, bool nothing);
Gave flights_copy(Queue* q, uint8_t* packet);
// The bound commands from where the queue stands up to `end`, all `count` of them, as one; no: not so.
enum class Batched : uint8_t { yes, full, lost, no };
bool flights_batches(const Queue* q);
Batched flights_batch(Queue* q, uint32_t end, uint32_t count);
// Sets a signal once what was given is over; false: there is no room for that now.
bool flights_signal(Queue* q, Signal* signal, uint64_t value, bool reserve = false);
bool flights_timestamp(Queue* q, Signal* signal);
bool flights_full(const Queue* q);
// Whether nothing is in flight. If something is, what was read until now counts as done when that is over.
bool flights_none(const Queue* q);
void flights_cover(Queue* q);
// Whether what is in flight is to set `signal` to `value` or more: then what follows need not wait for it.
bool flights_promise(const Queue* q, const Signal* signal, uint64_t value);
// Has the queue's lane stand until another queue of the device has carried out what it was given to set `signal` to
// `value`, so that the host need not wait for that. False: it isn't known to come, or can't be waited for there.
bool flights_follow(Queue* q, Signal* signal, uint64_t value);
// Ends what is over; true: something was.
bool flights_settle(Queue* q);
// Before the step lock is given up: what was given starts, and the interface is to tell of its end. `stalled`: there is
// more, which can only be given after that. True: something was over by then.
bool flights_rest(Queue* q, bool stalled);
// Before the step lock is given up: whose queues are to look again, once it is, at what they stand for, since they may
// follow it now; null: nobody's.
const Device* flights_offer(Queue* q);
void look_again(const Device* device);  // compares the address only: the device may be gone
// Whether a thread has to step this queue. Any thread, without the step lock.
bool flights_wanted(const Queue* q);
// Calls see(packet copy, its record) for what is in flight, oldest first, until it returns false.
bool flights_see(const Queue* q, bool (*see)(void* context, const PacketHeader*), void* context);
// Any thread: ends what is over, if no other thread is at it.
void flights_look(Queue* q);
// Any thread, for one that waits until `memory` is at `value`: sleeps until what is in flight on q has brought that
// about, for `ns` at most. False: it didn't, and may be called again; the interface can't, or has nothing of the kind.
bool flights_sleeps(const Queue* q);
bool flights_sleep(Queue* q, const SignalMemory& memory, uint64_t value, uint64_t ns);

// The interface's call (Interface::tell); drops the reference on q that `tell` was given.
void commands_over(Queue* q);

// Of the processor: the end of a command, as far as it doesn't concern the packet's place in the queue.
void command_ended(Queue* q, uint8_t* packet, uint64_t record, uint64_t start, uint64_t end);

// After publishing: gives what can be given at once to the interface, on this thread; else as doorbell().
void begin(Queue* q);

}  // namespace hcq
