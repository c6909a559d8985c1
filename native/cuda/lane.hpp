// The interface that carries out commands with CUDA's streams (core/interface.hpp), and the kernels that they launch.
#pragma once
#include <memory>
#include <vector>

#include "core/interface.hpp"
#include "core/program.hpp"
#include "cuda/context.hpp"

namespace hcq::cuda {

// A loaded image. Unloaded with the last kernel of it.
struct Module {
  std::shared_ptr<Context> context;
  Handle module;
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
  bool typed;                       // else each argument is in 8 bytes, behind their number
};

// The pointers to a kernel's arguments that launches take; `out` has room for all of them.
void point(const Kernel& kernel, const uint8_t* kernargs, void** out);

const Interface& interface();

}  // namespace hcq::cuda
