// DLPack, both ways (https://dmlc.github.io/dlpack/latest/): capsules over an exporter, and the memory of a capsule.
// Which dtype, shape and device they say is decided in hcq/runtime/interop.py.
#include "memory/internal.hpp"

namespace hcq {

namespace {

// dlpack.h 1.0, laid out as there.
struct DLDevice {
  int32_t device_type, device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: C-contiguous
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr uint64_t kReadOnly = 1, kIsCopied = 2;

constexpr const char* kName = "dltensor";
constexpr const char* kUsed = "used_dltensor";
constexpr const char* kNameVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";

template <typename Managed>
struct Exported {
  Managed managed;
  PyObject* exporter;
  int64_t dims[];  // shape, then strides
};

// Consumers may call this in any thread, without the GIL, and after the interpreter is gone.
template <typename Managed>
void delete_exported(Managed* managed) {
  Exported<Managed>* e = static_cast<Exported<Managed>*>(managed->context);
  if (!Py_IsInitialized() || finalizing()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(e->exporter);
  PyGILState_Release(state);
  free(e);
}

template <typename Managed>
void destroy_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: whoever did that calls the deleter
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter) managed->deleter(managed);
}
void destroy_plain(PyObject* capsule) { destroy_capsule<DLManagedTensor>(capsule, kName); }
void destroy_versioned(PyObject* capsule) { destroy_capsule<DLManagedTensorVersioned>(capsule, kNameVersioned); }

// Where the memory is; without an address it is the exporter's own, the host's.
struct Place {
  int type = 1, id = 0;
  unsigned long long address = 0;
};

template <typename Managed>
Exported<Managed>* make_exported(PyObject* exporter, PyObject* shape, int code, int bits, const Place& place) {
  Py_ssize_t n = PyTuple_GET_SIZE(shape);
  size_t bytes = sizeof(Exported<Managed>) + 2 * static_cast<size_t>(n) * sizeof(int64_t);
  Exported<Managed>* e = static_cast<Exported<Managed>*>(calloc(1, bytes));
  if (!e) {
    PyErr_NoMemory();
    return nullptr;
  }
  int64_t step = 1;
  for (Py_ssize_t i = n; i-- > 0;) {
    e->dims[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
    e->dims[n + i] = step;
    step *= e->dims[i];
  }
  e->exporter = Py_NewRef(exporter);
  e->managed.context = e;
  e->managed.deleter = delete_exported<Managed>;
  uint64_t address = place.address ? place.address : export_address(exporter);
  e->managed.tensor = DLTensor{reinterpret_cast<void*>(address),
                               DLDevice{place.type, place.id},
                               static_cast<int32_t>(n),
                               DLDataType{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1},
                               e->dims,
                               e->dims + n,
                               0};
  return e;
}

PyObject* dlpack_capsule(PyObject*, PyObject* args) {
  PyObject *exporter, *shape;
  int code, bits, versioned, copied;
  Place place;
  if (!PyArg_ParseTuple(args, "OO!iipp|(iiK)", &exporter, &PyTuple_Type, &shape, &code, &bits, &versioned, &copied,
                        &place.type, &place.id, &place.address))
    return nullptr;
  if (!export_check(exporter)) {
    PyErr_SetString(PyExc_TypeError, "dlpack_capsule needs an exporter");
    return nullptr;
  }
  PyObject* capsule = nullptr;
  if (versioned) {
    auto* e = make_exported<DLManagedTensorVersioned>(exporter, shape, code, bits, place);
    if (!e) return nullptr;
    e->managed.major = 1;
    e->managed.minor = 0;
    e->managed.flags = (export_readonly(exporter) ? kReadOnly : 0) | (copied ? kIsCopied : 0);
    capsule = PyCapsule_New(&e->managed, kNameVersioned, destroy_versioned);
    if (!capsule) delete_exported(&e->managed);
  } else {
    auto* e = make_exported<DLManagedTensor>(exporter, shape, code, bits, place);
    if (!e) return nullptr;
    capsule = PyCapsule_New(&e->managed, kName, destroy_plain);
    if (!capsule) delete_exported(&e->managed);
  }
  return capsule;
}

// Owner of consumed memory: a capsule of our own whose end calls the producer's deleter.
template <typename Managed>
void end_consumed(PyObject* owner) {
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(owner, nullptr));
  if (!managed->deleter) return;
  ErrorKept kept;
  managed->deleter(managed);
}

template <typename Managed>
PyObject* consume(PyObject* capsule, const char* name, const char* used, bool readonly) {
  Managed* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (!managed) return nullptr;
  const DLTensor& t = managed->tensor;
  PyObject* shape = PyTuple_New(t.ndim);
  PyObject* strides = PyTuple_New(t.ndim);
  uint64_t itemsize = (uint64_t{t.dtype.bits} * t.dtype.lanes + 7) / 8, span = itemsize;
  int64_t step = 1;
  for (int32_t i = t.ndim; i-- > 0;) {
    int64_t stride = t.strides ? t.strides[i] : step;
    step *= t.shape[i];
    if (t.shape[i] == 0)
      span = 0;
    else if (span)
      span += static_cast<uint64_t>(t.shape[i] - 1) * static_cast<uint64_t>(stride < 0 ? 0 : stride) * itemsize;
    PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(t.shape[i]));
    PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(stride * static_cast<int64_t>(itemsize)));
  }
  PyObject* owner = PyCapsule_New(managed, nullptr, end_consumed<Managed>);
  if (!owner || PyCapsule_SetName(capsule, used)) {
    Py_XDECREF(owner);
    return nullptr;
  }
  ExportView view;
  view.address = reinterpret_cast<uint64_t>(t.data) + t.byte_offset;
  view.nbytes = span;
  view.readonly = readonly;
  PyObject* exporter = export_new(nullptr, owner, view);
  Py_DECREF(owner);
  if (!exporter) return nullptr;
  return Py_BuildValue("(NNNiiiii)", exporter, shape, strides, t.dtype.code, t.dtype.bits, t.dtype.lanes,
                       t.device.device_type, t.device.device_id);
}

PyObject* dlpack_consume(PyObject*, PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kNameVersioned)) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kNameVersioned));
    if (managed->major != 1) {
      PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not known here, only 1.x", managed->major,
                   managed->minor);
      return nullptr;
    }
    return consume<DLManagedTensorVersioned>(capsule, kNameVersioned, kUsedVersioned, managed->flags & kReadOnly);
  }
  if (PyCapsule_IsValid(capsule, kName)) return consume<DLManagedTensor>(capsule, kName, kUsed, false);
  PyErr_SetString(PyExc_BufferError, "this is no DLPack capsule, or one that was consumed before");
  return nullptr;
}

PyMethodDef functions[] = {
    {"dlpack_capsule", dlpack_capsule, METH_VARARGS,
     "dlpack_capsule(exporter, shape, code, bits, versioned, copied, place=(1, 0, 0))\n--\n\nA DLPack capsule over "
     "host "
     "memory, or over a device's, which the exporter keeps: type and number of the device, and the address."},
    {"dlpack_consume", dlpack_consume, METH_O,
     "dlpack_consume(capsule)\n--\n\nTakes a capsule over: (exporter, shape, strides in bytes, dtype code, bits, "
     "lanes, device type, "
     "device id)."},
    {nullptr},
};

}  // namespace

int init_dlpack(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace hcq
