// Streams, and when their nodes run. What does not live here: what a node does (node.hpp), capture (capture.hpp).
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "api/entry.hpp"
#include "device/context.hpp"
#include "stream/node.hpp"

namespace cudacpu {

struct Stream {
  Context& context;
  const unsigned flags;
  std::atomic<int> priority;  // of work that is given to it from now on; a lower number goes first
  const uint64_t id;
  CUstream handle = nullptr;           // none of its own: the default ones, and what was destroyed
  std::atomic<bool> capturing{false};  // it is part of a capture: see capture.hpp

  Stream(Context& context, unsigned flags, int priority);
  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }

  // The rest is the scheduler's and guarded by its lock.
  struct Item {
    NodePtr node;
    std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> after;  // streams and how far they must have come
  };
  std::deque<Item> queue;
  uint64_t submitted = 0, completed = 0;  // nodes; completed <= submitted
  bool running = false;                   // a thread runs the first of the queue
  bool listed = false;                    // it is among the ready or the parked
  bool destroyed = false;
};

using StreamPtr = std::shared_ptr<Stream>;

constexpr int least_priority = 0, greatest_priority = -5;  // of streams

// For entries with _ptsz: what a null handle means there.
inline CUstream ptsz(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

// The stream that a handle means in a context; CUDA_ERROR_INVALID_HANDLE for what is none.
CUresult find_stream(Context& current, CUstream handle, std::shared_ptr<Stream>* out);

// Runs `body(stream)` for the stream that the handle means in the calling thread's context.
template <class F>
CUresult with_stream(CUstream handle, F&& body) {
  return with_context([&](Context& context) -> CUresult {
    StreamPtr stream;
    CUresult result = find_stream(context, handle, &stream);
    return result ? result : body(stream);
  });
}

// For who makes and ends streams: a stream counts in its context from add to end; work it has then is still done.
void add_stream(const std::shared_ptr<Stream>& stream);
void end_stream(const std::shared_ptr<Stream>& stream);
// Waits for what runs in the context, skips the rest, and ends all of its streams and their handles.
void end_streams(Context& context);

// Gives a node to a stream: to its queue, or to the graph that the stream is being captured into. Needs a current
// context. Never blocks.
CUresult submit(CUstream stream, NodePtr node);
CUresult submit(const std::shared_ptr<Stream>& stream, NodePtr node);
// To the queue, whether or not the stream is being captured: for the launch of a graph's parts.
// `position`, if asked for: which of the stream's nodes it is, for synchronize_to().
CUresult enqueue(const std::shared_ptr<Stream>& stream, NodePtr node, uint64_t* position = nullptr);

// Waits until all that was submitted is done, and helps with it; the context's error if it has one then.
CUresult synchronize(const std::shared_ptr<Stream>& stream);
CUresult synchronize(Context& context);
// Waits until the stream has come so far.
CUresult synchronize_to(const std::shared_ptr<Stream>& stream, uint64_t position);
bool idle(const std::shared_ptr<Stream>& stream);
// Waits until `done()`, which is asked after each node that ends, in any thread, under the scheduler's lock.
void wait_until(const std::function<bool()>& done);
// Says that something happened that a waiting node or thread may wait for.
void progress();

}  // namespace cudacpu
