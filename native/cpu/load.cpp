// Programs: made from libraries, and ended. The container is library.cpp's, the object loader.cpp's.
#include "core/names.hpp"
#include "core/retire.hpp"
#include "cpu/code.hpp"
#include "cpu/context.hpp"
#include "cpu/fault.hpp"
#include "cpu/library.hpp"

namespace hcq {

namespace {

void destroy(void* p) {
  auto* program = static_cast<Program*>(p);
  if (program->generation == g_generation) {
    if (program->end)
      program->end(program);
    else
      delete static_cast<Code*>(program->code);
  }
  program_forgotten(program->id);
  Freeing freeing;
  delete program;
}

// How many bytes of well-formed UTF-8 (The Unicode Standard, table 3-7) one character at `i` takes; 0 where it is none.
size_t character(const std::string& s, size_t i) {
  auto byte = [&](size_t k) { return i + k < s.size() ? static_cast<uint8_t>(s[i + k]) : 0; };
  auto tail = [&](size_t k, uint8_t low = 0x80, uint8_t high = 0xbf) { return byte(k) >= low && byte(k) <= high; };
  uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\n' ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef)
    return tail(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && tail(2) ? 3 : 0;
  if (first >= 0xf0 && first <= 0xf4)
    return tail(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && tail(2) && tail(3) ? 4 : 0;
  return 0;
}

// Names out of a damaged library can hold anything; a message is text.
void make_text(std::string* s) {
  for (size_t i = 0; i < s->size();) {
    size_t n = character(*s, i);
    if (!n) (*s)[i] = '?';
    i += n ? n : 1;
  }
}

Program* load(const uint8_t* bytes, size_t size, const std::string& name, std::string* error) {
  Library library;
  if (!library_parse(bytes, size, &library, error)) return nullptr;
  const LibraryFunction* function = library_find(library, name, error);
  if (!function) return nullptr;
  auto code = std::make_unique<Code>();
  code->image.reset(Image::load(library.object, library.object_size, error));
  if (!code->image) {
    *error = "function '" + name + "': " + *error;
    return nullptr;
  }
  if (!code->image->function(name, &code->entry)) {
    *error = "damaged library: its table names '" + name + "', which its object doesn't define; compile it anew";
    return nullptr;
  }
  bool has_grid =
      function->kind == EntryKind::items || function->kind == EntryKind::fibers || function->kind == EntryKind::group;
  if (has_grid && !contexts_possible(error)) return nullptr;
  auto program = std::make_unique<Program>();
  program->id = program_named(name);
  program->name = name;
  program->kind = function->kind;
  program->entry = code->image->first().code.address + code->entry;
  program->typed = function->typed;
  program->params = function->params;
  program->scratch_group = function->scratch_group;
  program->scratch_item = function->scratch_item;
  for (const auto& p : program->params) program->pointers += p.kind == ParamKind::pointer;
  if (program->scratch_group > kMaxLocal) {
    *error = "function '" + name + "' needs " + std::to_string(program->scratch_group) +
             " bytes of local memory; a work-group has at most " + std::to_string(kMaxLocal) +
             " (limits.local_memory_bytes)";
    return nullptr;
  }
  if (program->scratch_bytes(kMaxItems) > kMaxScratch) {
    *error = "function '" + name + "' needs " + std::to_string(program->scratch_bytes(kMaxItems)) +
             " bytes a work-group for local memory and what items keep across barriers; at most " +
             std::to_string(kMaxScratch) + " can be had";
    return nullptr;
  }
  if (!program->params.empty()) program->kernargs_size = program->params.back().offset + program->params.back().size;
  if (function->typed) code->plan = ArgumentPlan(program->params);
  fault_install();
  program->code = code.release();
  return program.release();
}

}  // namespace

Program* program_load(const uint8_t* bytes, size_t size, const std::string& name, std::string* error) {
  Program* program = load(bytes, size, name, error);
  if (!program) make_text(error);
  return program;
}

Program* program_nothing(const std::string& name) {
  auto* program = new Program;
  program->id = program_named(name);
  program->name = name;
  return program;
}

void program_release(Program* program) {
  // acq_rel: the last one to drop it must see what the others wrote before they did
  if (program->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  retire(destroy, program);
}

}  // namespace hcq
