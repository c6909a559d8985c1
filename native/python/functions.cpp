// Functions of _native that belong to no type: faults, awaiting, settings, reports.
#include "python/functions.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/program.hpp"
#include "core/queue_list.hpp"
#include "core/report.hpp"
#include "core/retire.hpp"
#include "core/scheduler.hpp"
#include "python/common.hpp"
#include "python/gil.hpp"
#include "python/watch.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
// (device, command, message, token, errno, path, report), or None for a fault of another process.
nb::object fault_info(uint64_t error) {
  Fault f;
  if (!fault_lookup(error, &f)) return nb::none();
  return nb::make_tuple(f.device, f.command, f.message, f.token, f.system, f.path, f.report);
}

// For drivers whose queues are not native: a failure, and signals that will not get their values because of it.
uint64_t record_fault(std::string device, std::string command, std::string message, uint64_t token,
                      std::string report) {
  return fault_record(
      Fault{std::move(device), std::move(command), std::move(message), token, 0, "", std::move(report)});
}

void fail_signal(nb::handle signal, uint64_t error, uint64_t first, uint64_t last) {
  Signal* s = signal_of(signal.ptr());
  if (!s) throw nb::python_error();
  signal_fail(*s->memory, error, first, last);
}

void register_async(nb::handle signal, uint64_t value, int descriptor, uint64_t token) {
  Signal* s = signal_of(signal.ptr());
  if (!s) throw nb::python_error();
  async_register(s, value, descriptor, token);
}

// Leaving the interpreter: waits for queued work, at most so long. Returns whether all was done.
bool drain_all(double seconds) {
  GilReleased release;
  uint64_t deadline = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  for (;;) {
    bool work = false;
    g_queues->lock.lock();
    for (Queue* q : g_queues->all) work |= q->has_work() && !q->blocked.load(std::memory_order_relaxed);
    g_queues->lock.unlock();
    if (!work) return true;
    if (now_ns() >= deadline) return false;
    urge();
    timespec t{0, 200000};
    nanosleep(&t, nullptr);
  }
}

nb::list queues_report() {
  nb::list out;
  g_queues->lock.lock();
  std::vector<Queue*> all = g_queues->all;
  for (Queue* q : all) queue_retain(q);
  g_queues->lock.unlock();
  for (Queue* q : all) {
    out.append(nb::make_tuple(q->name, q->tail.load(), q->done.value.load(), describe_queue(q)));
    queue_release(q);
  }
  return out;
}
}  // namespace

void init_native_functions(nb::module_& m) {
  m.def(
      "process_generation", [] { return g_generation; }, "Raised in every forked child.");
  m.def("fault_info", fault_info, nb::arg("error"),
        "What is known of a fault: (device, command, message, token, errno or -1 for a file's end, path, report)"
        " or None.");
  m.def("fault_record", record_fault, nb::arg("device"), nb::arg("command"), nb::arg("message"), nb::arg("token"),
        nb::arg("report") = "",
        "Note a failure; gives the error word for signals. token: a number of the Python side's, or 0.");
  m.def("signal_fail", fail_signal, nb::arg("signal"), nb::arg("error"), nb::arg("first"), nb::arg("last"),
        "Mark the values first..last of a signal as never coming, and wake whoever waits.");
  m.def("async_register", register_async, nb::arg("signal"), nb::arg("value"), nb::arg("descriptor"), nb::arg("token"),
        "When the signal reaches value (or fails), queue token for async_take and write 8 bytes to the descriptor.");
  m.def("async_take", async_take, nb::arg("descriptor"), "Tokens that are due, and forget them.");
  m.def("async_cancel", async_cancel, nb::arg("descriptor"), nb::arg("token"), "Forget an entry.");
  m.def(
      "signal_error",
      [](nb::handle signal) -> uint64_t {
        Signal* s = signal_of(signal.ptr());
        if (!s) throw nb::python_error();
        return s->memory->error.load(std::memory_order_acquire);
      },
      nb::arg("signal"), "The error word of a signal.");
  m.def(
      "signal_state",
      [](nb::handle signal, uint64_t value) {
        Signal* s = signal_of(signal.ptr());
        if (!s) throw nb::python_error();
        return static_cast<int>(signal_reached(*s->memory, value));
      },
      nb::arg("signal"), nb::arg("value"), "0 reached, 1 not yet, 2 failed.");
  m.def("set_worker_limit", set_worker_limit, nb::arg("threads"), "Threads that share one launch; 0: by the machine.");
  m.def("worker_limit", worker_limit, "Threads that share one launch.");
  m.def("scheduler_threads", scheduler_threads, "Threads of the command processor alive now.");
  m.def("set_queue_limit", queue_set_limit, nb::arg("bytes"), "Bytes of commands a queue may hold.");
  m.def("drain", drain_all, nb::arg("seconds"), "Wait for queued work of all queues; False when time ran out.");
  m.def("queues", queues_report, "(name, published, completed, what it stands at) of every open queue.");
  m.def(
      "queue_report", [] { return report_queues(nullptr, nullptr); },
      "What all queues of the process are at, in lines; empty where none had work.");
  m.def(
      "set_watching", [](uint32_t bits) { g_watching.store(bits, std::memory_order_relaxed); }, nb::arg("bits"),
      "Who is told of submits and accesses (hcq.runtime.watch); 0: nobody.");
  m.def(
      "run_retired", [] { run_retired(); }, "Release what queued work no longer uses.");
}

}  // namespace hcq
