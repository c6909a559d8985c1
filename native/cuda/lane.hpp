// The interface that carries out commands with CUDA's streams (core/interface.hpp), and the kernels that they launch.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/interface.hpp"
#include "core/packet.hpp"
#include "core/program.hpp"
#include "cuda/context.hpp"

namespace hcq::cuda {

// A loaded image. Unloaded with the last kernel of it.
struct Module {
  std::shared_ptr<Context> context;
  Handle module;
  std::mutex lock;  // a leaf: what a function is allowed is looked at, then raised
  uint32_t generation = g_generation;
  ~Module();
};

// Loads PTX or a cubin; throws Failure, whose words end with what the driver's compiler said.
std::shared_ptr<Module> load_module(std::shared_ptr<Context> context, const std::string& image);

struct Argument {
  uint32_t offset, size;  // in the kernargs
};

// What Program::entry is.
struct Kernel {
  std::shared_ptr<Module> module;
  Handle function;
  std::vector<Argument> arguments;  // in the kernel's order
  uint32_t local = 0;               // bytes of local memory a group beside what the kernel declares
  bool together = false;            // launched cooperatively: all groups are there at a time
};

// How many groups of `items` a kernel may have that is launched so; throws Failure.
uint64_t groups_at_a_time(const Kernel& kernel, const uint32_t items[3]);

// Bytes of local memory that a kernel declares, a group; throws Failure.
uint32_t declared_local(const Module& module, const std::string& symbol);
// What an image says of itself, from CUDA 12.4 on: its kernels, and the sizes of one's parameters. Throws Failure.
std::vector<std::string> kernels_of(const Module& module);
std::vector<uint32_t> parameters_of(const Module& module, const std::string& symbol);
// Where a variable of an image is and how many bytes it has; none where there is no such. Throws Failure.
std::pair<Address, size_t> variable_of(const Module& module, const std::string& symbol);
// Lets a function have so much local memory beside that; what it was let have before it keeps. Throws Failure.
void allow_local(Module& module, Handle function, uint32_t bytes);

// The pointers to a kernel's arguments that launches take; `out` has room for kMostArguments.
void point(const Kernel& kernel, const uint8_t* kernargs, void** out);

const Interface& interface();

}  // namespace hcq::cuda
