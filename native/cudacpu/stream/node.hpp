// What a stream does: one work item. Calls, stream capture and graphs all make the same nodes, so that each thing is
// done in one place. What does not live here: when nodes run (stream.hpp).
#pragma once
#include <memory>

#include "api/api.hpp"

namespace cudacpu {

class Context;

// What run() answers when the node hasn't finished: it stands at a wait. It is called again later, by any thread.
constexpr CUresult again = static_cast<CUresult>(-1);

// What a brief() node copies or fills at most.
constexpr size_t brief_bytes = 64 << 10;

// Immutable once made, so that a graph, its executables and several launches in flight share one; new parameters make
// a new node. Where a run needs state of its own (the launch of a graph), the node is made for that one run and keeps
// the state in mutable members: the runs of one queued node never overlap.
struct Node {
  virtual ~Node() = default;
  virtual CUgraphNodeType kind() const = 0;
  // Does it, or `again`, or an error, which becomes the context's. No lock of the library is held; it may block on what
  // it does itself (a kernel, a host function), but not on other streams.
  virtual CUresult run(Context& context) const = 0;
  // Instead of run() when the context has failed: lets go of those who wait for it.
  virtual void skip(Context& context, CUresult cause) const { (void)context, (void)cause; }
  // Whether it is done within microseconds and calls nobody: it then runs in the caller's thread on an idle stream.
  virtual bool brief() const { return false; }
};

using NodePtr = std::shared_ptr<const Node>;

}  // namespace cudacpu
