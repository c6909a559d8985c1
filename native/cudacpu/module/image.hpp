// What a module's PTX became: kernels and variables, told by the compiler (src/hcq/cudacpu/loading.py) while it is
// called. What does not live here: modules and libraries of the API (module.hpp), running kernels (grid.hpp).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "run/grid.hpp"

namespace cudacpu {

class Device;

struct Param {
  uint32_t offset, size;
};

struct Kernel {
  std::string name;
  Code code;                        // without an entry until `loaded`
  std::atomic<bool> loaded{false};  // release and acquire: `code` is as it stays
  std::vector<Param> params;
  uint32_t param_bytes;
  uint32_t registers;
  uint32_t max_threads;           // 0: as many as the device takes
  uint32_t required[3];           // .reqntid; 0 without
  std::vector<uint8_t> accesses;  // see whose.hpp
};

struct Global {
  std::string name;
  void* at;
  size_t size;
  bool constant;
};

// Code that is loaded, and its variables. Stays while a module, a function or a launch that has not ended holds it.
struct Image {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Global> globals;
  Lines lines;
  std::string info, errors;  // the compiler's logs; under `lock` once it is loaded
  std::mutex lock;           // of kernels that are loaded later
  uint64_t handle = 0;       // the compiler's; 0: none

  Image() = default;
  Image(const Image&) = delete;
  ~Image();  // calls the compiler: not with a lock held
  const Kernel* kernel(const std::string& name) const;
  const Global* global(const std::string& name) const;
};

// What the compiler is asked. PTX text, a fat binary, or what was linked (linker.cpp).
struct CompileRequest {
  const void* data;
  size_t size;
  uint32_t capability;
  uint32_t check;
  uint32_t only_compile;  // to see if it is right
  uint64_t memory;        // bytes of the device
};

// What the compiler tells of a kernel; copied. No entry: its code is made later.
struct KernelInfo {
  const char* name;
  void* entry;
  const uint32_t* params;  // offset and bytes of each
  uint32_t param_count;
  uint32_t kind, shared, local, registers, max_threads;
  uint32_t required[3];
  uint32_t scratch_group, scratch_item;
  const uint8_t* accesses;
  uint32_t access_bytes;
};
static_assert(sizeof(KernelInfo) == 88 && offsetof(KernelInfo, required) == 48 && offsetof(KernelInfo, accesses) == 72);

// Has a kernel's code compiled where it was not with its module. Any thread; may take the interpreter's lock: not with
// a lock of the library held.
CUresult load_kernel(Image& image, const Kernel& kernel);

// Calls the compiler; `image` is filled also where it fails, for its logs. May take the interpreter's lock: not with a
// lock of the library held.
CUresult compile(const void* data, size_t size, const Device& device, bool only_compile, Image& image);

// Bytes of what cuModuleLoadData is given, which says itself how long it is; 0: it is nothing that is known.
size_t image_size(const void* data);
// Where a wrapper (what a compiler leaves in a program) points to; else the same.
const void* unwrapped(const void* data);

// How what was linked begins. Then: bytes in all, then texts, with a zero byte between them.
constexpr char kLinkedMagic[8] = {'H', 'C', 'Q', 'L', 'I', 'N', 'K', '1'};

}  // namespace cudacpu
