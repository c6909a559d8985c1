// How arguments travel from kernargs to a C function, by the platform's calling convention (System V x86-64
// psABI 3.2.3, AAPCS64 6.8.2): the n-th integer or pointer in the n-th integer register, the n-th float in the n-th
// vector register, what has no register left on the stack in order, eight bytes each.
#pragma once
#include <utility>
#include <vector>

#include "core/program.hpp"

namespace hcq {

#if defined(__aarch64__)
constexpr size_t kIntegerRegisters = 8;
#else
constexpr size_t kIntegerRegisters = 6;
#endif
constexpr size_t kFloatRegisters = 8;
constexpr size_t kRegisters = kIntegerRegisters + kFloatRegisters;
constexpr size_t kMaxArguments = 512;  // 4096 bytes of kernargs, eight each

// The values as they are passed: integer registers, float registers, then the stack.
struct ArgumentValues {
  uint64_t values[kRegisters + kMaxArguments];
};

class ArgumentPlan {
 public:
  ArgumentPlan() = default;
  // For typed functions. Untyped ones take any number of eight-byte slots, whose count comes first in the kernargs.
  explicit ArgumentPlan(const std::vector<Param>&);

  // Calls a function that takes what the kernargs hold; for a single call.
  void call_once(void* entry, const uint8_t* kernargs) const;
  // The same in two halves, for many calls with equal arguments. `spread` returns which caller fits.
  using Caller = void (*)(void* entry, const uint64_t* values);
  Caller spread(const uint8_t* kernargs, ArgumentValues*) const;

 private:
  struct Step {
    ParamKind kind;
    uint16_t to;  // index in ArgumentValues
    uint32_t offset;
  };
  // Calls with all arguments in integer registers, for one number of them.
  using Direct = void (*)(void* entry, const Step*, const uint8_t* kernargs);
  template <size_t... I>
  static void call_slots(void* entry, const Step*, const uint8_t* kernargs);
  template <size_t... I>
  static void call_integers(void* entry, const Step*, const uint8_t* kernargs);
  template <size_t... I>
  static Direct direct(bool slots, std::index_sequence<I...>);
  template <size_t... N>
  static Direct direct(bool slots, size_t count, std::index_sequence<N...>);

  std::vector<Step> steps_;
  bool typed_ = false;
  Direct direct_ = nullptr;  // null when there are floats, or more than fit
  uint32_t stack_ = 0;       // how many go on the stack
  bool floats_ = false;
};

}  // namespace hcq
