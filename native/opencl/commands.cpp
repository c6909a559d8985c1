// The table of functions for OpenCL (commands.hpp). In-order queues with profiling; memory is shared virtual memory.
#include "opencl/commands.hpp"

#include <cstdlib>
#include <cstring>

#include "core/device.hpp"
#include "opencl/images.hpp"

namespace hcq::opencl {

Held g_held;

namespace {
void* open(void* context, std::string* error) {
  auto* c = static_cast<Context*>(context);
  const uint64_t properties[] = {kQueueProperties, kProfiling, 0};
  Status status = kSuccess;
  Handle queue = api().clCreateCommandQueueWithProperties(c->context, c->device, properties, &status);
  if (failed(status, "clCreateCommandQueueWithProperties", error)) return nullptr;
  ++g_held.queues;
  return new Lane{queue, *c};
}

void close(void* opened) {
  auto* lane = static_cast<Lane*>(opened);
  api().clReleaseCommandQueue(lane->queue);
  --g_held.queues;
  delete lane;
}

Handle queue_of(void* lane) { return static_cast<Lane*>(lane)->queue; }

bool set_arguments(Kernel& k, const uint8_t* kernargs, std::string* error) {
  bool all = k.last.empty();
  if (all && !k.arguments.empty()) k.last.resize(k.arguments.back().offset + k.arguments.back().size);
  for (const Argument& a : k.arguments) {
    const uint8_t* value = kernargs + a.offset;
    // What was set at the last launch is set still; of an image another one may have the address by now.
    if (!all && !a.image && std::memcmp(k.last.data() + a.offset, value, a.size) == 0) continue;
    Status status;
    void* pointer = nullptr;
    if (a.pointer) std::memcpy(&pointer, value, sizeof pointer);
    if (a.image) {
      std::shared_ptr<Image> image = image_at(reinterpret_cast<uint64_t>(pointer));
      // An image that went since, or kernargs that nobody checked: a handle of none is refused.
      Handle memory = image && image->start == reinterpret_cast<uint64_t>(pointer) ? image->memory : nullptr;
      status = memory ? api().clSetKernelArg(k.kernel, a.index, sizeof memory, &memory) : kNoMemoryObject;
    } else if (a.pointer) {
      status = api().clSetKernelArgSVMPointer(k.kernel, a.index, pointer);
    } else {
      status = api().clSetKernelArg(k.kernel, a.index, a.size, value);
    }
    if (status != kSuccess) {
      k.last.clear();
      *error = "argument " + std::to_string(a.index) + ": " + status_name(status);
      return false;
    }
    std::memcpy(k.last.data() + a.offset, value, a.size);
  }
  return true;
}

bool exec(void* lane, const Program& program, const uint8_t* arguments, const uint32_t groups[3],
          const uint32_t items[3], Command* out, std::string* error) {
  auto& k = *static_cast<Kernel*>(program.entry);
  size_t global[3], local[3];
  for (int i = 0; i < 3; ++i) {
    local[i] = items[i];
    global[i] = local[i] * groups[i];
  }
  k.lock.lock();
  bool set = set_arguments(k, arguments, error);
  Status status = kSuccess;
  if (set) {
    uint32_t dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
    status = api().clEnqueueNDRangeKernel(queue_of(lane), k.kernel, dimensions, nullptr, global, local, 0, nullptr,
                                          &out->event);
  }
  k.lock.unlock();
  if (!set || failed(status, "clEnqueueNDRangeKernel", error)) return false;
  g_held.events.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool enqueue_copy(void* lane, void* to, const void* from, size_t bytes, void** event, std::string* error) {
  if (failed(api().clEnqueueSVMMemcpy(queue_of(lane), 0, to, from, bytes, 0, nullptr, event), "clEnqueueSVMMemcpy",
             error))
    return false;
  if (event) g_held.events.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool copy(void* lane, uint64_t destination, uint64_t source, uint64_t bytes, Command* out, std::string* error) {
  auto* to = reinterpret_cast<void*>(destination);
  auto* from = reinterpret_cast<const void*>(source);
  std::shared_ptr<Image> to_image = image_at(destination), from_image = image_at(source);
  if (to_image || from_image)
    return copy_images(*static_cast<Lane*>(lane), to_image.get(), destination, from_image.get(), source, bytes, out,
                       error);
  uint64_t apart = destination > source ? destination - source : source - destination;
  if (apart >= bytes) return enqueue_copy(lane, to, from, bytes, &out->event, error);
  // OpenCL refuses ranges that overlap: by way of memory of ours.
  out->scratch = std::malloc(bytes);
  if (!out->scratch) {
    *error = "no memory for a copy of " + std::to_string(bytes) + " bytes that overlaps itself";
    return false;
  }
  if (enqueue_copy(lane, out->scratch, from, bytes, nullptr, error) &&
      enqueue_copy(lane, to, out->scratch, bytes, &out->event, error))
    return true;
  out->scratch = nullptr;  // leaked: a copy into it may be under way
  return false;
}

void flush(void* lane) { api().clFlush(queue_of(lane)); }

Over over(const Command& command, std::string* error) {
  Status state = kComplete;
  Status status = api().clGetEventInfo(command.event, kEventStatus, sizeof state, &state, nullptr);
  if (failed(status, "clGetEventInfo", error)) return Over::failed;
  if (state < 0) {
    *error = "OpenCL says " + status_name(state);
    return Over::failed;
  }
  return state == kComplete ? Over::yes : Over::no;
}

// OpenCL's times are on a clock of the device's own, but say how long after the call each thing happened.
void times(const Command& command, uint64_t given, uint64_t* start, uint64_t* end) {
  uint64_t queued = 0, started = 0, ended = 0, now = now_ns();
  auto ask = [&](uint32_t what, uint64_t* out) {
    return api().clGetEventProfilingInfo(command.event, what, sizeof *out, out, nullptr) == kSuccess;
  };
  *start = given;
  *end = now;
  if (!ask(kQueued, &queued) || !ask(kStarted, &started) || !ask(kEnded, &ended) || started < queued || ended < started)
    return;
  *start = given + (started - queued);
  *end = *start + (ended - started);
  if (*end > now) {  // it is over: the device's clock runs fast, or counted from later than we did
    *start -= *end - now;
    *end = now;
  }
}

void told(Handle, Status, void* queue) { commands_over(static_cast<Queue*>(queue)); }

bool tell(const Command& command, Queue* q) {
  return api().clSetEventCallback(command.event, kComplete, told, q) == kSuccess;
}

void drop(const Command& command) {
  api().clReleaseEvent(command.event);
  g_held.events.fetch_sub(1, std::memory_order_relaxed);
  std::free(command.scratch);
}

void leave(void* context) {
  auto* c = static_cast<Context*>(context);
  api().clReleaseContext(c->context);
  --g_held.contexts;
  delete c;
}

// A marker of an in-order queue: what is given after it waits with it. Whose command it is was flushed by then, as
// OpenCL asks for: nobody else has that one's step lock while something is not.
bool follow(void* lane, const Command& other, Command* out, std::string* error) {
  Handle theirs = other.event;
  if (failed(api().clEnqueueMarkerWithWaitList(queue_of(lane), 1, &theirs, &out->event), "clEnqueueMarkerWithWaitList",
             error))
    return false;
  g_held.events.fetch_add(1, std::memory_order_relaxed);
  return true;
}

constexpr Interface kInterface = {open, close, exec,  copy,    flush,  over,  times,
                                  tell, drop,  leave, nullptr, follow, false, nullptr};
}  // namespace

const Interface& interface() { return kInterface; }

}  // namespace hcq::opencl
