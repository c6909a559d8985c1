// What the Python-facing files share: errors by name, generation checks, small object helpers, waiting with the GIL.
#pragma once
#include <Python.h>
#include <structmember.h>

#include <string>

#include "core/describe.hpp"
#include "core/device.hpp"

namespace hcq {

// Whether the interpreter is being torn down and this thread lacks the GIL. A thread that then comes for the GIL is
// ended there: the frames of ours that it is in are unwound without it.
inline bool ended_without_gil() {
#if PY_VERSION_HEX >= 0x030d0000
  return __builtin_expect(Py_IsFinalizing(), 0) && !PyGILState_Check();
#else
  return __builtin_expect(_Py_IsFinalizing(), 0) && !PyGILState_Check();
#endif
}

// Owns one reference. For locals, so that every early return is right.
class Ref {
 public:
  explicit Ref(PyObject* p = nullptr) : p_(p) {}
  Ref(Ref&& other) noexcept : p_(other.p_) { other.p_ = nullptr; }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  Ref& operator=(Ref&& other) noexcept {
    PyObject* old = p_;
    p_ = other.p_;
    other.p_ = nullptr;
    Py_XDECREF(old);
    return *this;
  }
  ~Ref() {
    if (p_ && !ended_without_gil()) Py_DECREF(p_);
  }
  PyObject* get() const { return p_; }
  PyObject* release() {
    PyObject* p = p_;
    p_ = nullptr;
    return p;
  }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  PyObject* p_;
};

// Raises hcq.errors.<name>(message). Always returns nullptr.
PyObject* raise(const char* name, const std::string& message);
// Raises ForkedDeviceError for something made in another generation. Always returns nullptr.
PyObject* raise_forked(uint32_t generation, const std::string& what);
// Raises the error that a failed wait stands for: DeviceLost with the first cause (hcq.queues.faults builds it).
PyObject* raise_fault(uint64_t error);
uint64_t config_number(const char* variable);  // hcq.config.<variable>(); 0 and an error set on failure

bool parse_u64(PyObject* value, uint64_t* out, const char* what);  // TypeError, or ValueError when out of range

// --- waiting -------------------------------------------------------------------------------------------------------
enum class Waited : uint8_t { reached, failed, timeout, interrupted };

struct Wait {
  SignalMemory* memory;
  uint64_t value;
  bool own = false;              // compare values only, whatever error the signal carries
  Queue* setter = nullptr;       // the queue that is to set it, if known: stepped by this thread
  Queue* setter2 = nullptr;      // a second one
  uint64_t slice_ns = 50000000;  // longest sleep between two looks
};
// Called with the GIL and returns with it. Looks, helps for some 20 us with the GIL, then without it; sleeps; ends at
// the deadline (ns; it looks once more), or with a Python exception set when a signal handler raised.
Waited wait_until(const Wait& wait, uint64_t deadline);
// Waits until queue has completed position.
Waited wait_position(Queue* queue, uint64_t position, uint64_t deadline);
// The same, where the deadline is for queues that stand at a wait: a command that runs has HCQ_KERNEL_TIMEOUT_MS.
// failed: the device is lost and the command that lost it still runs.
Waited wait_commands(Queue* queue, uint64_t position, uint64_t deadline);
uint64_t deadline_after_ms(uint64_t ms);
// --- objects -------------------------------------------------------------------------------------------------------
struct SignalObject {
  PyObject_HEAD Signal* signal;
  PyObject* weakrefs;
};
extern PyTypeObject* Signal_Type;
// A borrowed pointer, or nullptr with TypeError / ForkedDeviceError set.
Signal* signal_of(PyObject* object);
PyObject* signal_object(Signal* signal);  // a new Python object over an existing signal; shares ownership

struct DeviceObject {
  PyObject_HEAD Device* device;  // null until opened
  PyObject* timeline_signal;     // the Python object of device->timeline.signal
  unsigned long lock_owner;      // thread that holds timeline_lock; 0: nobody. Guarded by the GIL
  uint32_t lock_depth;
  PyObject* weakrefs;
};
extern PyTypeObject* Device_Type;
// A borrowed pointer, or nullptr with an error set: wrong type, not open, closed, forked.
Device* device_of(PyObject* object);
bool device_usable(Device* device);  // raises ForkedDeviceError, RuntimeError (closed), DeviceLost
// With the GIL: waits until no other thread holds dev.timeline_lock. False: an exception is set.
bool timeline_lock_free(DeviceObject* device);

struct StreamObject {
  PyObject_HEAD Device* device;
  PyObject* device_object;
  Queue* queue;
  Timeline* timeline;
  PyObject* weakrefs;
};
extern PyTypeObject* Stream_Type;
PyObject* stream_new(PyObject* device, PyObject*);  // dev._stream()
PyObject* timeline_lock_new(PyObject* device);

struct ProgramObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  Program* program;
  DeviceObject* device;
  PyObject* name;
  PyObject* accesses;  // what a launch does to each buffer, as the library or the user says; made when asked for
  PyObject* weakrefs;
};
extern PyTypeObject* Program_Type;
constexpr const char* kProgramCapsule = "hcq.program";  // around a Program* that a Program object is made of

// Sizes: None is (1, 1, 1); else three whole numbers. Raises LaunchError. `groups`: against limits.groups, may be 0.
bool parse_groups(PyObject* value, const Limits& limits, uint32_t out[3]);
bool parse_items(PyObject* value, const Limits& limits, uint32_t out[3]);
// Groups x items that the program allows (a plain function runs once).
bool check_sizes(const Program& program, const uint32_t groups[3], const uint32_t items[3]);

// Under no lock, with the GIL: takes the queue's produce lock when `units` fit; else helps and waits until they do.
// Returns false with SignalTimeout (or another exception) set and no lock held.
bool reserve(Queue* queue, uint64_t units, uint32_t largest, Timeline* timeline);

uint64_t submits_of(PyObject* queue);  // how often a CommandQueue was submitted; 0 for anything else

int init_signal(PyObject* module);
int init_device(PyObject* module);
int init_stream(PyObject* module);
int init_timeline_lock(PyObject* module);
int init_program(PyObject* module);
int init_command_queue(PyObject* module);
int init_graph(PyObject* module);
int init_graph_input(PyObject* module);
int init_graph_changes(PyObject* module);
int init_replay(PyObject* module);

}  // namespace hcq
