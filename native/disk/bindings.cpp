// _native.DiskFile and the disk_ functions, for hcq.drivers.disk.
#include "disk/bindings.hpp"

#include <nanobind/stl/string.h>

#include <cerrno>
#include <vector>

#include "core/retire.hpp"
#include "disk/engine.hpp"
#include "disk/scatter.hpp"
#include "memory/internal.hpp"
#include "platform/files.hpp"
#include "platform/platform.hpp"
#include "python/common.hpp"
#include "python/gil.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
class DiskFile {
 public:
  DiskFile(int descriptor, const std::string& path, bool writable) : file_(file_open(descriptor, path, writable)) {
    if (file_) return;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  ~DiskFile() { file_release(file_); }
  DiskFile(const DiskFile&) = delete;
  uint64_t claim(uint64_t bytes) const {
    uint64_t at = file_claim(file_, bytes);
    if (!at) throw nb::value_error("no addresses are left for files of this size");
    return at;
  }
  void unclaim(uint64_t address, uint64_t bytes) const { file_unclaim(file_, address, bytes); }

 private:
  File* file_;
};

// Fills (or writes) a buffer; (bytes moved, errno, -1 for the file's end, or 0).
nb::tuple move(int descriptor, nb::handle buffer, uint64_t offset, bool write) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, write ? PyBUF_SIMPLE : PyBUF_WRITABLE) != 0) throw nb::python_error();
  int error;
  uint64_t moved;
  {
    GilReleased release;
    moved =
        move_bytes(descriptor, static_cast<uint8_t*>(view.buf), static_cast<uint64_t>(view.len), offset, write, &error);
  }
  PyBuffer_Release(&view);
  return nb::make_tuple(moved, error);
}

// The memory of exports and other writable buffers, filled with neighbouring bytes of a file; as move().
nb::tuple scatter(int descriptor, nb::handle into, uint64_t offset) {
  PyObject* parts = PySequence_Tuple(into.ptr());
  if (!parts) throw nb::python_error();
  Py_ssize_t count = PyTuple_GET_SIZE(parts);
  std::vector<iovec> memory;
  std::vector<Py_buffer> views;
  memory.reserve(static_cast<size_t>(count));
  bool right = true;
  for (Py_ssize_t i = 0; right && i < count; ++i) {
    PyObject* part = PyTuple_GET_ITEM(parts, i);
    if (export_check(part) && !export_readonly(part)) {  // the tuple keeps it, and it the memory
      memory.push_back({reinterpret_cast<void*>(export_address(part)), export_bytes(part)});
      continue;
    }
    Py_buffer view;
    right = PyObject_GetBuffer(part, &view, PyBUF_WRITABLE) == 0;
    if (!right) break;
    views.push_back(view);
    memory.push_back({view.buf, static_cast<size_t>(view.len)});
  }
  int error = 0;
  uint64_t moved = 0;
  if (right) {
    GilReleased release;
    moved = scatter_bytes(descriptor, &memory, offset, &error);
  }
  for (Py_buffer& view : views) PyBuffer_Release(&view);
  Py_DECREF(parts);
  if (!right) throw nb::python_error();
  return nb::make_tuple(moved, error);
}

// While a signal that a copy sets isn't reached, does pieces of it here: for some milliseconds, then Python may look at
// its own signals. Whether to come again.
bool help(nb::handle signal, uint64_t value) {
  Signal* s = signal_of(signal.ptr());
  if (!s) throw nb::python_error();
  GilReleased release;
  uint64_t until = now_ns() + 10000000;
  Queue* q = s->setter.load(std::memory_order_relaxed);
  if (queue_retain_live(q)) {
    step(q, true, now_ns() + 20000);  // the copy may not have begun
    queue_release(q);
  }
  while (signal_reached(*s->memory, value) == Reached::no) {
    if (!engine_help()) return false;
    if (now_ns() >= until) return true;
  }
  return false;
}

uint64_t address(nb::handle buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  auto at = reinterpret_cast<uint64_t>(view.buf);
  PyBuffer_Release(&view);
  return at;
}

uint64_t map(int descriptor, uint64_t bytes, bool writable) {
  void* at = map_file(descriptor, bytes, writable);
  if (at) return reinterpret_cast<uint64_t>(at);
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

struct Mapping {
  void* address;
  uint64_t bytes;
};
void unmap(uint64_t at, uint64_t bytes) {
  retire(
      [](void* p) {
        auto* m = static_cast<Mapping*>(p);
        unmap_memory(m->address, m->bytes);
        delete m;
      },
      new Mapping{reinterpret_cast<void*>(at), bytes});
}

void choose(const std::string& engine) {
  engine_choose(engine == "threads" ? EngineChoice::threads
                : engine == "uring" ? EngineChoice::uring
                                    : EngineChoice::automatic);
}
}  // namespace

void bind_disk(nb::module_& m) {
  g_start_file_copy = start_file_copy;
  at_fork_in_child(files_after_fork);
  at_fork_in_child(engine_after_fork);
  nb::class_<DiskFile>(
      m, "DiskFile",
      "A file for queues to copy from and to. Takes the descriptor over: it is closed when nothing uses it.")
      .def(nb::init<int, const std::string&, bool>(), nb::arg("descriptor"), nb::arg("path"), nb::arg("writable"))
      .def("claim", &DiskFile::claim, nb::arg("bytes"),
           "Addresses that stand for the file's first bytes, in copies of native queues; all who claim one file have "
           "the same, until unclaim.")
      .def("unclaim", &DiskFile::unclaim, nb::arg("address"), nb::arg("bytes"),
           "Give a claim back, once queued work has passed.");
  m.def("disk_move", move, nb::arg("descriptor"), nb::arg("buffer"), nb::arg("offset"), nb::arg("write"),
        "Read into the whole buffer, or write it, on this thread, without the GIL: (bytes moved, errno; -1 where the "
        "file ends).");
  m.def("disk_scatter", scatter, nb::arg("descriptor"), nb::arg("into"), nb::arg("offset"),
        "Fill writable buffers, one after the other, from byte `offset` on, as disk_move does.");
  m.def("disk_help", help, nb::arg("signal"), nb::arg("value"),
        "Do some of the copy that is to set the signal, on this thread; whether there may be more.");
  m.def("disk_address", address, nb::arg("buffer"), "Where the memory of a C-contiguous buffer is; it isn't kept.");
  m.def("disk_map", map, nb::arg("descriptor"), nb::arg("bytes"), nb::arg("writable"),
        "Map the first bytes of a file, shared with all who do; the address. OSError.");
  m.def("disk_unmap", unmap, nb::arg("address"), nb::arg("bytes"), "Undo disk_map once queued work has passed.");
  m.def("disk_engine", choose, nb::arg("name"), "Who reads: threads, uring, or auto.");
  m.def("disk_has_uring", engine_has_uring, "Whether this system lets us have a ring.");
  m.def("disk_threads", engine_threads, "Threads of the engines alive now.");
  m.def("disk_files", files_open, "Files that queues may copy from and to.");
  m.def(
      "disk_speeds",
      [](uint64_t volume) {
        std::lock_guard<std::mutex> guard(engine_lock());
        const Speeds& s = speeds_of(volume);
        return nb::make_tuple(s.rate[1], s.rate[2], s.rate[3]);
      },
      nb::arg("volume"), "Bytes a second of plain, deep and direct reads of a file system (st_dev); 0: not tried.");
  m.def(
      "disk_force_way", force_way, nb::arg("way"),
      "For tests: reads by queues of more than 256 KiB go this way: 0 cached, 1 plain, 2 deep, 3 direct; -1: chosen.");
  m.def("disk_direct_pieces", direct_pieces, "Pieces that were read past the page cache.");
  m.def("disk_disturb", disturb, nb::arg("calls"), nb::arg("most"), nb::arg("error"),
        "For tests: the next system calls that read or write move `most` bytes at most, or fail with an errno.");
}

}  // namespace hcq
