// What the files of native/memory share among themselves: counters, pins, names, calls into Python.
#pragma once
#include <Python.h>

#include "core/record.hpp"
#include "memory/memory.hpp"
#include "python/error_kept.hpp"

namespace hcq {

// Counters of one device name; never freed. Guarded by the GIL.
struct DeviceRecord {
  PyObject* name;  // canonical; null for the record that DISK and NPY share, which is not shown
  uint64_t live_bytes = 0, live_count = 0, peak_bytes = 0;
  bool survives_fork = false;
  DeviceTrack recorded;
};
// The record of a canonical name; nullptr with an exception set.
DeviceRecord* record_of(PyObject* name);
inline void record_live(DeviceRecord* record, uint64_t bytes) {
  record->live_bytes += bytes;
  ++record->live_count;
  if (record->live_bytes > record->peak_bytes) record->peak_bytes = record->live_bytes;
}
inline void record_dead(DeviceRecord* record, uint64_t bytes) {
  record->live_bytes -= bytes;
  --record->live_count;
}

// The counter of a device in the trace of whoever profiles; `gone` is the handle of a buffer that has just been let go
// of. With the GIL, as the counters.
inline void trace_memory(DeviceRecord* record, PyObject* gone = nullptr) {
  uint64_t session = recording();
  if (__builtin_expect(session == 0, 1) || !record->name) return;
  const char* name = PyUnicode_AsUTF8(record->name);
  if (!name) return PyErr_Clear();
  uint64_t first = 0, size = 0;
  if (gone && hcq_buffer_check(gone)) {
    first = reinterpret_cast<HCQBufferObject*>(gone)->va_addr;
    size = reinterpret_cast<HCQBufferObject*>(gone)->size;
  }
  record_memory(session, record->recorded, name, record->live_bytes, record->live_count, first, first + size);
}

// Interned attribute names.
struct Names {
  PyObject *alloc, *free, *driver_alloc, *driver_free, *allocator, *as_buffer, *offset, *copyin, *copyout, *itemsize,
      *nolru, *position, *passed, *synchronize, *wait_queued, *canonical, *opened, *canonicalize, *closed;
};
extern Names names;

// A function or class of one of our Python modules, imported at first use and kept; borrowed, nullptr with an
// exception.
PyObject* python_object(const char* module, const char* name, PyObject** kept);

// Pins: objects (`_buf`) that a buffer over a caller's memory or an export uses. A free of a pinned object is put off
// until the last pin goes. Guarded by the GIL.
void pin(PyObject* opaque);
void unpin(PyObject* opaque);  // may call Python, and never leaves an exception
bool pinned(PyObject* opaque);
void free_when_unpinned(PyObject* opaque, PyObject* allocator, uint64_t size, PyObject* options);

// Gives memory to `allocator.free`, or puts that off; steals nothing; never leaves an exception (finalizers call it).
void release_memory(PyObject* allocator, PyObject* opaque, uint64_t size, PyObject* options);
// Drops the reference to a caller's memory once queued work has passed; takes that reference over.
void release_caller_memory(PyObject* allocator, PyObject* opaque);

// allocator.alloc(size, options): new reference or nullptr.
PyObject* allocate_memory(PyObject* allocator, uint64_t size, PyObject* options);

PyObject* records_dict();                  // borrowed; may be null
PyObject* canonical_name(PyObject* name);  // of a str or None; new reference
// The device of a buffer's canonical name, opened; new reference.
PyObject* open_device(PyObject* name);
// Returns when what the device had queued has finished; -1 with an exception. `device` is an opened one.
int wait_device(PyObject* device);

// Live root buffers, for messages and for closing devices.
extern BufferObject* g_live_roots;

// Arguments.
bool to_u64(PyObject* o, const char* what, uint64_t* out);  // TypeError, ValueError where it is negative or too large
bool to_size(PyObject* o, uint64_t* out);                   // as to_u64, and ValueError for 0: bytes of an allocation
// Spreads vectorcall arguments over `values` by position and keyword; those not given keep what they held.
bool unpack(PyObject* const* args, Py_ssize_t n, PyObject* kwnames, const char* const* keywords, int count,
            int required, const char* function, PyObject** values);

void set_forked(uint32_t generation, const char* what);  // ForkedDeviceError
PyObject* error_type(const char* name);                  // of hcq.errors; borrowed
bool finalizing();                                       // the interpreter is being torn down

// What exports host memory: an object with the buffer protocol that pins `opaque` and holds the block of a handle, and
// `owner`, if any, for as long as any consumer lives.
struct ExportView {
  uint64_t address = 0;
  uint64_t nbytes = 0;
  bool readonly = false;
  const char* format = "B";   // static text
  Py_ssize_t itemsize = 1;    // bytes
  PyObject* shape = nullptr;  // tuple of ints, or null: flat
};
PyObject* export_new(PyObject* opaque, PyObject* owner, const ExportView& view);

// The same over another exporter's contiguous memory, as bytes; what `object` is asked for by `flags` of the protocol.
PyObject* export_over(PyObject* object, int flags);
bool export_check(PyObject* o);
uint64_t export_address(PyObject* exporter);
uint64_t export_bytes(PyObject* exporter);
bool export_readonly(PyObject* exporter);

void host_trim();  // the pool's unused memory goes back to the system

int init_hcq_buffer(PyObject* module);
int init_lru(PyObject* module);
int init_host_allocator(PyObject* module);
int init_buffer(PyObject* module);
int init_export(PyObject* module);
int init_dlpack(PyObject* module);
int init_stats(PyObject* module);

extern PyTypeObject* LRUAllocator_Type;
extern PyTypeObject* HostAllocator_Type;
extern PyMethodDef buffer_methods[];

}  // namespace hcq
