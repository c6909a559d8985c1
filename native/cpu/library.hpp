// The library container: a table of functions beside one relocatable ELF object. Parsing only; the layout is described
// in docs/design/code.md and written by hcq.drivers.cpu.library.
#pragma once
#include <string>
#include <vector>

#include "core/program.hpp"

namespace hcq {

struct LibraryFunction {
  std::string name;
  EntryKind kind = EntryKind::plain;
  bool typed = false;
  std::string refused;  // why it can't be launched; empty when it can
  std::vector<Param> params;
  uint32_t scratch_group = 0, scratch_item = 0;  // as in Program
};

struct Library {
  std::vector<LibraryFunction> functions;
  const uint8_t* object = nullptr;  // inside the caller's bytes
  size_t object_size = 0;
};

// False, with a full message in `error`, for anything that is not an undamaged library for this processor.
bool library_parse(const uint8_t* bytes, size_t size, Library* out, std::string* error);
// The function of that name; nullptr, with a message that lists what is there, when it is missing or refused.
const LibraryFunction* library_find(const Library&, const std::string& name, std::string* error);

}  // namespace hcq
