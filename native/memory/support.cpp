// What the memory types share: argument parsing, imports, errors, pins, counters by device, waiting for a device.
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/internal.hpp"

namespace hcq {

Names names;

namespace {

struct Pin {
  uint64_t count = 0;
  struct Deferred {
    PyObject* allocator;
    PyObject* options;
    uint64_t size;
  };
  std::vector<Deferred> frees;
};

std::unordered_map<PyObject*, Pin> g_pins;
PyObject* g_records;  // dict: canonical name -> capsule of a DeviceRecord
DeviceRecord g_unshown{nullptr, 0, 0, 0, true};

int init_names() {
  struct {
    PyObject** name;
    const char* text;
  } const all[] = {{&names.alloc, "alloc"},
                   {&names.free, "free"},
                   {&names.driver_alloc, "_alloc"},
                   {&names.driver_free, "_free"},
                   {&names.allocator, "allocator"},
                   {&names.as_buffer, "as_buffer"},
                   {&names.offset, "offset"},
                   {&names.copyin, "copyin"},
                   {&names.copyout, "copyout"},
                   {&names.itemsize, "itemsize"},
                   {&names.nolru, "nolru"},
                   {&names.position, "position"},
                   {&names.passed, "passed"},
                   {&names.synchronize, "synchronize"},
                   {&names.wait_queued, "_wait_queued"},
                   {&names.canonical, "_canonical"},
                   {&names.opened, "_opened"},
                   {&names.canonicalize, "canonicalize"},
                   {&names.closed, "closed"}};
  for (auto& n : all)
    if (!(*n.name = PyUnicode_InternFromString(n.text))) return -1;
  return 0;
}

PyObject* registry() {
  static PyObject* kept;
  return python_object("hcq.runtime.registry", "Device", &kept);
}

// A dict that is an attribute of the registry, borrowed from it for as long as it lives.
PyObject* registry_dict(PyObject* name) {
  PyObject* device = registry();
  PyObject* dict = device ? PyObject_GetAttr(device, name) : nullptr;
  if (!dict) return nullptr;
  Py_DECREF(dict);
  return dict;
}

}  // namespace

PyObject* python_object(const char* module, const char* name, PyObject** kept) {
  if (*kept) return *kept;
  PyObject* m = PyImport_ImportModule(module);
  PyObject* o = m ? PyObject_GetAttrString(m, name) : nullptr;
  Py_XDECREF(m);
  if (!*kept)
    *kept = o;
  else
    Py_XDECREF(o);  // the import let another thread run, which was first
  return *kept;
}

PyObject* error_type(const char* name) {
  PyObject* m = PyImport_ImportModule("hcq.errors");
  PyObject* type = m ? PyObject_GetAttrString(m, name) : nullptr;
  Py_XDECREF(m);
  Py_XDECREF(type);  // the module holds it
  return type;
}

bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

void set_forked(uint32_t generation, const char* what) {
  static PyObject* kept;
  PyObject* make = python_object("hcq.runtime.process", "forked", &kept);
  PyObject* error = make ? PyObject_CallFunction(make, "Is", generation, what) : nullptr;
  if (error) put_error(error);
}

bool to_u64(PyObject* o, const char* what, uint64_t* out) {
  if (!PyIndex_Check(o)) {
    PyErr_Format(PyExc_TypeError, "%s must be an integer, not %.100s", what, Py_TYPE(o)->tp_name);
    return false;
  }
  PyObject* number = PyNumber_Index(o);
  if (!number) return false;
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  bool good = overflow == 0 && value >= 0;
  if (overflow > 0) {
    unsigned long long large = PyLong_AsUnsignedLongLong(number);
    good = !PyErr_Occurred();
    PyErr_Clear();
    value = static_cast<long long>(large);
  }
  if (good)
    *out = static_cast<uint64_t>(value);
  else
    PyErr_Format(PyExc_ValueError, "%s must be between 0 and 2**64 - 1, not %S", what, number);
  Py_DECREF(number);
  return good;
}

bool to_size(PyObject* o, uint64_t* out) {
  if (!PyIndex_Check(o)) {
    PyErr_Format(PyExc_TypeError, "size must be an integer number of bytes, not %.100s", Py_TYPE(o)->tp_name);
    return false;
  }
  PyObject* number = PyNumber_Index(o);
  if (!number) return false;
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  bool good = overflow == 0 && value > 0;
  if (good)
    *out = static_cast<uint64_t>(value);
  else
    PyErr_Format(PyExc_ValueError, "an allocation must have between 1 and 2**63 - 1 bytes, not %S", number);
  Py_DECREF(number);
  return good;
}

bool unpack(PyObject* const* args, Py_ssize_t n, PyObject* kwnames, const char* const* keywords, int count,
            int required, const char* function, PyObject** values) {
  if (n > count) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", function, count, n);
    return false;
  }
  uint32_t given = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    values[i] = args[i];
    given |= 1u << i;
  }
  Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < named; ++k) {
    PyObject* key = PyTuple_GET_ITEM(kwnames, k);
    int i = 0;
    while (i < count && PyUnicode_CompareWithASCIIString(key, keywords[i]) != 0) ++i;
    if (i == count || (given & (1u << i))) {
      PyErr_Format(
          PyExc_TypeError,
          i == count ? "%s() got an unexpected keyword argument '%U'" : "%s() got multiple values for argument '%U'",
          function, key);
      return false;
    }
    values[i] = args[n + k];
    given |= 1u << i;
  }
  for (int i = 0; i < required; ++i)
    if (!(given & (1u << i))) {
      PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", function, keywords[i]);
      return false;
    }
  return true;
}

// Pins

void pin(PyObject* opaque) {
  Pin& p = g_pins[opaque];
  if (p.count++ == 0) Py_INCREF(opaque);
}

bool pinned(PyObject* opaque) { return !g_pins.empty() && g_pins.count(opaque) != 0; }

void free_when_unpinned(PyObject* opaque, PyObject* allocator, uint64_t size, PyObject* options) {
  g_pins[opaque].frees.push_back({Py_NewRef(allocator), Py_NewRef(options), size});
}

void unpin(PyObject* opaque) {
  auto it = g_pins.find(opaque);
  if (it == g_pins.end() || --it->second.count) return;
  std::vector<Pin::Deferred> frees = std::move(it->second.frees);
  g_pins.erase(it);
  for (auto& f : frees) {
    if (hcq_buffer_check(opaque)) reinterpret_cast<HCQBufferObject*>(opaque)->freed = false;  // put off, not done
    release_memory(f.allocator, opaque, f.size, f.options);
    Py_DECREF(f.allocator);
    Py_DECREF(f.options);
  }
  Py_DECREF(opaque);
}

// Counters

DeviceRecord* record_of(PyObject* name) {
  if (!g_records && !(g_records = PyDict_New())) return nullptr;
  PyObject* found = PyDict_GetItemWithError(g_records, name);
  if (found) return static_cast<DeviceRecord*>(PyCapsule_GetPointer(found, nullptr));
  if (PyErr_Occurred()) return nullptr;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  std::string kind(text);
  kind = kind.substr(0, kind.find(':'));
  if (kind == "DISK" || kind == "NPY") return &g_unshown;  // and no record for each path
  DeviceRecord* record = new DeviceRecord{Py_NewRef(name)};
  PyObject* capsule = PyCapsule_New(record, nullptr, nullptr);
  if (!capsule || PyDict_SetItem(g_records, name, capsule)) {
    Py_XDECREF(capsule);
    Py_DECREF(record->name);
    delete record;
    return nullptr;
  }
  Py_DECREF(capsule);
  return record;
}

PyObject* records_dict() { return g_records; }

// Devices

PyObject* canonical_name(PyObject* name) {
  if (name != Py_None) {
    PyObject* known = registry_dict(names.canonical);
    if (!known) return nullptr;
    PyObject* found = PyDict_GetItemWithError(known, name);
    if (found) return Py_NewRef(found);
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_CallMethodOneArg(registry(), names.canonicalize, name);
}

PyObject* open_device(PyObject* name) {
  PyObject* opened = registry_dict(names.opened);
  if (!opened) return nullptr;
  PyObject* device = PyDict_GetItemWithError(opened, name);
  if (device) return Py_NewRef(device);
  if (PyErr_Occurred()) return nullptr;
  return PyObject_GetItem(registry(), name);
}

int wait_device(PyObject* device) {
  PyObject* method = _PyType_Lookup(Py_TYPE(device), names.wait_queued) ? names.wait_queued : names.synchronize;
  PyObject* r = PyObject_CallMethodNoArgs(device, method);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int init_memory(PyObject* module) {
  if (init_names() || init_hcq_buffer(module) || init_export(module) || init_dlpack(module) || init_lru(module) ||
      init_host_allocator(module) || init_buffer(module) || init_stats(module))
    return -1;
  return 0;
}

}  // namespace hcq
