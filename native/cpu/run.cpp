// Runs work-groups of a loaded function on the calling thread. How code got into memory is loader.cpp's business.
#include "core/program.hpp"

namespace hcq {

namespace {

// The raw value of one argument, extended to a register as its type asks.
uint64_t argument(const uint8_t* kernargs, const Param& p) {
  const uint8_t* at = kernargs + p.offset;
  auto read = [at](auto value) {
    __builtin_memcpy(&value, at, sizeof value);
    return value;
  };
  switch (p.kind) {
    case ParamKind::i8:
      return static_cast<uint64_t>(static_cast<int64_t>(read(int8_t{})));
    case ParamKind::i16:
      return static_cast<uint64_t>(static_cast<int64_t>(read(int16_t{})));
    case ParamKind::i32:
      return static_cast<uint64_t>(static_cast<int64_t>(read(int32_t{})));
    case ParamKind::u8:
    case ParamKind::boolean:
      return read(uint8_t{});
    case ParamKind::u16:
      return read(uint16_t{});
    case ParamKind::u32:
      return read(uint32_t{});
    default:
      return read(uint64_t{});
  }
}

}  // namespace

void run_groups(const Program& program, const uint8_t* kernargs, const uint32_t[3], const uint32_t[3], uint64_t,
                uint64_t) {
  if (program.kind == EntryKind::nothing) return;
  uint64_t a[6] = {};
  for (size_t i = 0; i < program.params.size() && i < 6; ++i) a[i] = argument(kernargs, program.params[i]);
  using Entry = void (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  reinterpret_cast<Entry>(program.entry)(a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // namespace hcq
