// Making programs that an interface carries out (elsewhere.hpp).
#include "python/elsewhere.hpp"

#include <stdexcept>

#include "core/names.hpp"
#include "core/packet.hpp"
#include "python/common.hpp"

namespace nb = nanobind;

namespace hcq {
namespace {

struct Type {
  const char* name;
  ParamKind kind;
  uint16_t size;
  Access access = Access::unknown;
};
constexpr Type kTypes[] = {{"ptr", ParamKind::pointer, 8},
                           {"const", ParamKind::pointer, 8, Access::read},
                           {"image r", ParamKind::pointer, 8, Access::read},
                           {"image w", ParamKind::pointer, 8, Access::write},
                           {"image rw", ParamKind::pointer, 8, Access::both},
                           {"i8", ParamKind::i8, 1},
                           {"u8", ParamKind::u8, 1},
                           {"i16", ParamKind::i16, 2},
                           {"u16", ParamKind::u16, 2},
                           {"i32", ParamKind::i32, 4},
                           {"u32", ParamKind::u32, 4},
                           {"i64", ParamKind::i64, 8},
                           {"u64", ParamKind::u64, 8},
                           {"f16", ParamKind::f16, 2},
                           {"bf16", ParamKind::bf16, 2},
                           {"f32", ParamKind::f32, 4},
                           {"f64", ParamKind::f64, 8},
                           {"boolean", ParamKind::boolean, 1},
                           {"bits8", ParamKind::bits8, 1},
                           {"bits16", ParamKind::bits16, 2},
                           {"bits32", ParamKind::bits32, 4},
                           {"bits64", ParamKind::bits64, 8},
                           {"f8e4m3fn", ParamKind::f8e4m3fn, 1},
                           {"f8e5m2", ParamKind::f8e5m2, 1}};
constexpr uint32_t kStructureAlignment = 8;  // interfaces copy them: what alignment they have there is theirs

Type type_of(const std::string& name) {
  for (const Type& type : kTypes)
    if (name == type.name) return type;
  uint32_t bytes = 0;
  if (name.rfind("bytes", 0) == 0 && name.size() < 10)
    for (char digit : name.substr(5)) bytes = digit >= '0' && digit <= '9' ? bytes * 10 + (digit - '0') : 0;
  if (!bytes || bytes > kMaxInlineArguments) throw std::invalid_argument("no type of arguments is called " + name);
  return Type{"", ParamKind::structure, static_cast<uint16_t>(bytes)};
}
void check_carried(uint32_t bytes) {
  if (bytes > kMaxInlineArguments)
    throw std::invalid_argument(std::to_string(bytes) + " bytes of arguments: a launch carries " +
                                std::to_string(kMaxInlineArguments));
}
}  // namespace

std::unique_ptr<Program> program_elsewhere(const std::string& name, const std::vector<std::string>& types,
                                           const std::vector<std::string>& names, uint64_t most_items,
                                           std::tuple<uint32_t, uint32_t, uint32_t> wanted, std::vector<Laid>* laid) {
  if (types.size() > kMostArguments)
    throw std::invalid_argument(std::to_string(types.size()) + " arguments: a launch has " +
                                std::to_string(kMostArguments));
  auto program = std::make_unique<Program>();
  uint32_t at = 0;
  for (bool pointers : {true, false}) {
    for (uint32_t i = 0; i < types.size(); ++i) {
      const Type type = type_of(types[i]);
      if ((type.kind == ParamKind::pointer) != pointers) continue;
      uint32_t alignment = type.kind == ParamKind::structure ? kStructureAlignment : type.size;
      at = (at + alignment - 1) / alignment * alignment;
      program->params.push_back(Param{type.kind, type.access, type.size, at, i < names.size() ? names[i] : ""});
      laid->push_back(Laid{i, at, type.size, pointers});
      at += type.size;
      program->pointers += pointers;
    }
  }
  check_carried(at);
  program->id = program_named(name);
  program->name = name;
  program->kind = EntryKind::elsewhere;
  program->typed = true;
  program->kernargs_size = at;
  program->most_items = most_items;
  std::tie(program->wanted_items[0], program->wanted_items[1], program->wanted_items[2]) = wanted;
  return program;
}

void in_order(Program& program, const std::vector<Laid>& laid) {
  program.in_order.resize(laid.size());
  for (size_t i = 0; i < laid.size(); ++i) program.in_order[laid[i].index] = std::move(program.params[i]);
  uint32_t slots = 1;  // the first has their number
  for (Param& p : program.in_order) {
    p.offset = 8 * slots;
    slots += (p.size + 7u) / 8;
  }
  check_carried(8 * slots);
  program.typed = false;
  program.params.clear();
  program.pointers = program.kernargs_size = 0;
}

nb::object program_capsule(std::unique_ptr<Program> program) {
  PyObject* capsule = PyCapsule_New(program.get(), kProgramCapsule, [](PyObject* unused) {
    program_release(static_cast<Program*>(PyCapsule_GetPointer(unused, kProgramCapsule)));
  });
  if (!capsule) throw nb::python_error();
  program.release();
  return nb::steal(capsule);
}

}  // namespace hcq
