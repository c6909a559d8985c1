// Kernels of modules: where their arguments go, and a pipeline for each size of group.
#pragma once
#include <memory>
#include <mutex>

#include "core/program.hpp"
#include "vulkan/pipeline.hpp"

namespace hcq::vk {

// Bytes of kernargs that go to a place among a kernel's own arguments.
struct Argument {
  uint32_t from, to, bytes;
};

// A kernel of a module, and its pipelines. Any thread.
struct Kernel {
  std::shared_ptr<Module> module;
  std::string entry;  // its name in the module
  std::vector<Argument> arguments;
  std::vector<Argument> addresses;  // those of them that are
  uint32_t argument_bytes = 0;
  bool in_memory = false;  // arguments are behind an address; else they are pushed

  bool find(const uint32_t items[3], Handle* pipeline) const;
  // Makes it, where there is none; as Module::pipeline.
  void make(const uint32_t items[3], const std::string& cached, std::string* cache);

 private:
  struct Sized {
    uint32_t items[3];
    Handle pipeline;
  };
  mutable SpinLock lock_;  // a leaf
  std::mutex making_;
  std::vector<Sized> pipelines_;
};

// What Program::entry is; with what makes pipelines, in Python.
struct Entry {
  std::shared_ptr<Kernel> kernel;
  void* make;
};
inline const Kernel& kernel_of(const Program& program) { return *static_cast<const Entry*>(program.entry)->kernel; }

}  // namespace hcq::vk
