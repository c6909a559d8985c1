// Counters of live buffers by device, and the pool's own, for hcq.memory_stats and listings.
#include "memory/internal.hpp"
#include "memory/pool.hpp"

namespace hcq {

namespace {

PyObject* live_stats(PyObject*, PyObject*) {
  PyObject* result = PyDict_New();
  PyObject* records = records_dict();
  Py_ssize_t at = 0;
  PyObject *name, *capsule;
  while (result && records && PyDict_Next(records, &at, &name, &capsule)) {
    DeviceRecord* r = static_cast<DeviceRecord*>(PyCapsule_GetPointer(capsule, nullptr));
    PyObject* row = Py_BuildValue("(KKK)", r->live_bytes, r->live_count, r->peak_bytes);
    if (!row || PyDict_SetItem(result, name, row)) Py_CLEAR(result);
    Py_XDECREF(row);
  }
  return result;
}

PyObject* live_buffers(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (BufferObject* b = g_live_roots; list && b; b = b->next) {
    if (b->generation != g_generation || !b->owned) continue;
    PyObject* row = Py_BuildValue("(OKKO)", b->device, b->nbytes, b->size, b->dtype);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

PyObject* live_ranges(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (BufferObject* b = g_live_roots; list && b; b = b->next) {
    if (b->generation != g_generation || !b->buf || !hcq_buffer_check(b->buf)) continue;
    auto* handle = reinterpret_cast<HCQBufferObject*>(b->buf);
    PyObject* row = Py_BuildValue("(KKO)", handle->va_addr, handle->va_addr + handle->size, b->device);
    if (!row || PyList_Append(list, row)) Py_CLEAR(list);
    Py_XDECREF(row);
  }
  return list;
}

PyObject* host_pool_stats(PyObject*, PyObject*) {
  PoolStats s = pool_stats();
  return Py_BuildValue("{sKsKsKsK}", "mapped", s.mapped, "populated", s.populated, "used", s.used, "mappings",
                       s.mappings);
}

PyMethodDef functions[] = {
    {"live_stats", live_stats, METH_NOARGS,
     "live_stats()\n--\n\nBy device name: (bytes, count, highest bytes) of the root buffers that were allocated for "
     "it."},
    {"live_buffers", live_buffers, METH_NOARGS,
     "live_buffers()\n--\n\n(device, bytes, size, dtype) of all live root buffers that own their memory."},
    {"live_ranges", live_ranges, METH_NOARGS,
     "live_ranges()\n--\n\n(first address, end, device) of all live root buffers in memory with addresses."},
    {"host_pool_stats", host_pool_stats, METH_NOARGS,
     "host_pool_stats()\n--\n\nBytes and mappings of the pool of host memory."},
    {nullptr},
};

}  // namespace

int init_stats(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace hcq
