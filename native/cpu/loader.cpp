// Loading of libraries into executable memory, and the end of programs.
#include "core/program.hpp"

namespace hcq {

Program* program_load(const uint8_t*, size_t, const std::string& name, std::string* error) {
  *error = "cannot load '" + name + "': this build has no loader";
  return nullptr;
}

Program* program_nothing(const std::string& name) {
  auto* program = new Program;
  program->name = name;
  return program;
}

void program_release(Program* program) {
  // acq_rel: the last one to drop it must see what the others wrote before they did
  if (program->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete program;
}

}  // namespace hcq
