// Reading the packets of a queue that have not run, and what they are in words. For error messages: takes its time, and
// may be asked of queues that other threads run.
#pragma once
#include <functional>
#include <string>

#include "core/queue.hpp"

namespace hcq {

// A packet that has not run, or runs. Good during the call that is given it, and what it points at as well.
struct Unfinished {
  const PacketHeader* packet;
  uint64_t base;    // what kRelative values count from
  uint64_t record;  // of its submit, with the line
  int64_t bound;    // which of the bound commands it is; -1: none of them
  bool opens;       // an indirect packet before its commands: it waits
};
using See = std::function<bool(const Unfinished&)>;

enum class Walked : uint8_t {
  stands,  // nobody runs it: the first packet waits, or is about to run
  runs,    // another thread, or a job, runs the first packet
  no       // it could not be read; `see` was called for some packets, maybe
};
// Calls see(packet) for the packets of q that have not finished, in order, until it returns false. `mine`: the queue
// whose step lock the caller holds.
Walked walk(Queue* q, const Queue* mine, const See& see);

// The command that sets `signal`, if this one does: its value. `wanted` is not looked at.
bool sets(const Unfinished& u, const Signal* signal, uint64_t* value);
// What it has to wait for first: false where nothing, or where that is reached.
bool stands_at(const Unfinished& u, const Device* device, Signal** signal, uint64_t* value);
std::string name_of(const Unfinished& u);  // the program's, or what kind of command it is
// "fill (command #3, signal #1 to 3, train.py:15)".
std::string words(const Unfinished& u);
std::string words_of_last(const Queue* q);  // of the command that finished last; empty: none has
std::string running_name(Queue* q);         // the program or "copy" that runs; empty: nothing does

}  // namespace hcq
