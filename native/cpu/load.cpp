// Programs: made from libraries, and ended. The container is library.cpp's, the object loader.cpp's.
#include "core/retire.hpp"
#include "cpu/code.hpp"
#include "cpu/library.hpp"

namespace hcq {

// Weak until every build has it: without queues nothing is queued, and a release is due at once.
__attribute__((weak)) void retire(void (*fn)(void*), void* p);

namespace {

std::atomic<uint64_t> g_next_id{1};

void destroy(void* p) {
  auto* program = static_cast<Program*>(p);
  if (program->generation == g_generation) delete static_cast<Code*>(program->code);
  delete program;
}

}  // namespace

Program* program_load(const uint8_t* bytes, size_t size, const std::string& name, std::string* error) {
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
  auto program = std::make_unique<Program>();
  program->id = g_next_id.fetch_add(1, std::memory_order_relaxed);  // relaxed: only has to be unique
  program->name = name;
  program->kind = function->kind;
  program->entry = code->image->first().code.address + code->entry;
  program->typed = function->typed;
  program->params = function->params;
  program->scratch_group = function->scratch_group;
  program->scratch_item = function->scratch_item;
  for (const auto& p : program->params) program->pointers += p.kind == ParamKind::pointer;
  if (!program->params.empty()) program->kernargs_size = program->params.back().offset + program->params.back().size;
  if (function->typed) code->plan = ArgumentPlan(program->params);
  program->code = code.release();
  return program.release();
}

Program* program_nothing(const std::string& name) {
  auto* program = new Program;
  program->id = g_next_id.fetch_add(1, std::memory_order_relaxed);  // relaxed: only has to be unique
  program->name = name;
  return program;
}

void program_release(Program* program) {
  // acq_rel: the last one to drop it must see what the others wrote before they did
  if (program->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (retire)
    retire(destroy, program);
  else
    destroy(program);
}

}  // namespace hcq
