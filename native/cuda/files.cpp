// cuFile's functions, found at run time (files.hpp).
#include "cuda/files.hpp"

#include <dlfcn.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace hcq::cuda {

namespace {
constexpr int kDescriptor = 1;  // CU_FILE_HANDLE_TYPE_OPAQUE_FD

struct Status {
  int error, cuda;  // CUfileOpError, CUresult
};
static_assert(sizeof(Status) == 8, "CUfileError_t");

struct Description {
  int type;
  union {
    int descriptor;
    void* handle;
  };
  const void* operations;
};
static_assert(sizeof(Description) == 24, "CUfileDescr_t");

struct Properties {
  unsigned major, minor;
  size_t poll_threshold, most_direct;
  unsigned systems, controls;
  unsigned features, most_cached, most_cached_each, most_pinned, most_batched, batch_timeout;
};
static_assert(sizeof(Properties) == 56, "CUfileDrvProps_t");

struct Library {
  Status (*open)();
  Status (*properties)(Properties*);
  Status (*add)(void**, Description*);
  void (*remove)(void*);
  ssize_t (*read)(void*, void*, size_t, off_t, off_t);
};

Library g_library;
bool g_loaded = false;

std::string find(void* library, Library* out) {
  std::string missing;
  auto get = [&](const char* symbol) {
    void* found = dlsym(library, symbol);
    if (!found) missing = symbol;
    return found;
  };
  out->open = reinterpret_cast<decltype(out->open)>(get("cuFileDriverOpen"));
  out->properties = reinterpret_cast<decltype(out->properties)>(get("cuFileDriverGetProperties"));
  out->add = reinterpret_cast<decltype(out->add)>(get("cuFileHandleRegister"));
  out->remove = reinterpret_cast<decltype(out->remove)>(get("cuFileHandleDeregister"));
  out->read = reinterpret_cast<decltype(out->read)>(get("cuFileRead"));
  return missing.empty() ? "" : "the libcufile here has no " + missing;
}
}  // namespace

std::string load_cufile(const std::vector<std::string>& names) {
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  if (g_loaded) return "";
  void* library = nullptr;  // stays: it has threads of its own
  for (const std::string& name : names)
    if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return "there is no libcufile.so.0 here";
  Library found{};
  std::string missing = find(library, &found);
  if (!missing.empty()) return missing;
  Status status = found.open();
  if (status.error) return "cuFileDriverOpen gave " + std::to_string(status.error);
  g_library = found;
  g_loaded = true;
  return "";
}

FileFacts cufile_facts() {
  Properties p{};
  if (g_library.properties(&p).error) return {};
  return {p.major, p.minor, p.systems};
}

unsigned long file_system(int descriptor) {
  struct statfs facts;
  return fstatfs(descriptor, &facts) == 0 ? static_cast<unsigned long>(facts.f_type) : 0;
}

KnownFile::KnownFile(int descriptor) : descriptor_(descriptor) {
  Description description{};
  description.type = kDescriptor;
  description.descriptor = descriptor;
  Status status = g_library.add(&handle_, &description);
  if (!status.error) return;
  close(descriptor);
  throw Failure{status.error, "cuFileHandleRegister gave " + std::to_string(status.error)};
}

KnownFile::~KnownFile() {
  if (generation_ == g_generation) g_library.remove(handle_);  // else the parent's
  close(descriptor_);
}

std::pair<size_t, int> KnownFile::read(const Context& context, Address to, size_t bytes, int64_t offset) const {
  Current current(context);
  size_t done = 0;
  while (done < bytes) {
    errno = 0;
    ssize_t count = g_library.read(handle_, reinterpret_cast<void*>(to), bytes - done,
                                   offset + static_cast<int64_t>(done), static_cast<off_t>(done));
    if (count == -1 && errno == EINTR) continue;
    if (count == -1) return {done, errno ? errno : EIO};
    if (count < 0) return {done, static_cast<int>(count)};
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return {done, 0};
}

}  // namespace hcq::cuda
