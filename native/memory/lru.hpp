// hcq.LRUAllocator as other native files see it: freed memory kept by size and options and handed out again.
#pragma once
#include <deque>

#include "core/retire.hpp"
#include "memory/cache.hpp"
#include "memory/internal.hpp"

namespace hcq {

// Memory freed while work was queued that may still use it.
struct PendingFree {
  uint64_t id;
  PyObject* opaque;    // strong
  PyObject* options;   // strong; null for a caller's memory, which is only let go of
  PyObject* position;  // of a device whose queues are Python's, or null
  uint64_t size;
  uint32_t kind;
  bool really;  // goes back to the driver, not into the cache
  Stamp stamp;
};

struct Kind {
  uint32_t number;
  bool nolru;  // really freed on free
};

struct LRUState {
  BlockCache cache;
  std::deque<PendingFree> pending;
  uint64_t next_id = 0;
  uint64_t live_bytes = 0;  // handed out and not given back, direct calls of alloc included
  uint64_t pending_bytes = 0;
  uint64_t limit = 0;  // bytes; 0 is none
  uint64_t patience_at =
      0;                // ns: until then an allocation doesn't wait for pending memory, which didn't come last time
  bool lru = true;      // LRU=0 switches caching off
  bool closed = false;  // the device was closed: what is freed goes back to the driver
  PyObject* kinds = nullptr;         // dict: options -> number << 1 | nolru
  long last_number = 0;              // the last kind given out
  PyObject* last_options = nullptr;  // strong: the last looked up, and its kind
  Kind last_kind{0, false};
};

struct LRUObject {
  PyObject_HEAD PyObject* dict;
  PyObject* weakrefs;
  PyObject* device;  // what `allocator.device` is; null until set
  LRUState* state;
  LRUObject *previous, *next;  // all allocators of the process; guarded by the GIL
  uint32_t generation;
};

inline LRUObject* as_lru(PyObject* o) { return reinterpret_cast<LRUObject*>(o); }
inline bool lru_check(PyObject* o) { return PyType_IsSubtype(Py_TYPE(o), LRUAllocator_Type); }

PyObject* lru_alloc(LRUObject* self, uint64_t size, PyObject* options);
// ValueError, with nothing changed, for an HCQBuffer that is free already or was handed out as another size.
int lru_free(LRUObject* self, PyObject* opaque, uint64_t size, PyObject* options);
int lru_free_cache(LRUObject* self);
// Whether alloc and free of this object are ours, so that they may be called without going through Python.
bool lru_is_plain(PyObject* o);

// HostAllocator's own. Copies wait for the allocator's device first; -1 with an exception.
PyObject* host_offset(HCQBufferObject* handle, uint64_t size, uint64_t at);
// The handle for a caller's memory: an HCQBuffer of enough bytes as it is, else one over what `opaque` exports.
PyObject* host_wrap(PyObject* opaque, uint64_t nbytes);
int host_copyin(PyObject* self, HCQBufferObject* dest, const void* src, uint64_t size);
int host_copyout(PyObject* self, void* dest, HCQBufferObject* src, uint64_t size);

}  // namespace hcq
