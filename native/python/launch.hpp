// What every way of launching shares: keywords, the lane, writing the packet, waiting for it.
#pragma once
#include "python/arguments.hpp"

namespace hcq {

struct Keywords {
  PyObject *global_size = nullptr, *local_size = nullptr, *vals = nullptr, *wait = nullptr, *stream = nullptr;
};
bool parse_keywords(PyObject* const* values, PyObject* names, Keywords* out);

// (bufs, vals, groups, items) as they were given, checked before (pack_arguments), structures as bytes; vals () and
// sizes None where they weren't.
PyObject* launch_given(const Program& program, PyObject* const* args, Py_ssize_t count, const Keywords& keywords);

struct Launch {
  Program* program;
  DeviceObject* device;
  uint32_t groups[3], items[3];
  const uint8_t* arguments;
  uint32_t arguments_size;
  PyObject* watched = nullptr;  // while somebody watches: (device, program, bufs, vals, groups, items)
};
// Writes the packet. `wait`: also until it has finished, returning seconds; `hold`: the same without a result.
PyObject* enqueue(const Launch& launch, PyObject* stream, bool wait, bool hold);
// The same while somebody watches, who is told before and after. `given`: (bufs, vals, groups, items); `empty`: of no
// groups, so that nothing is queued.
PyObject* enqueue_watched(PyObject* program, PyObject* given, Launch launch, PyObject* stream, bool wait, bool hold,
                          bool empty);

// The arguments of a launch over arrays, in a tuple (null without memory). An exception that is set stays set.
PyObject* kept_arguments(PyObject* const* args, Py_ssize_t count, Arguments* arguments);
// Drops it once queued work has passed: a launch whose wait ended early may still run.
void keep_until_passed(PyObject* object);

PyObject* nothing(bool wait);         // what a launch of no groups returns
bool program_usable(ProgramObject*);  // raises for what is not initialised, closed, lost or inherited
int truth(PyObject* object);          // of a keyword; null and None are false, -1 is an error

PyObject* prepare(PyObject* program, PyObject* const* args, Py_ssize_t count, PyObject* names);  // prg.prepare
int init_launch(PyObject* module);
int init_prepared_launch(PyObject* module);

}  // namespace hcq
