// Spreading of kernargs over registers and stack. No assembler: a C function with as many integer, float and further
// integer parameters as there are registers and stack slots puts every value where the convention wants it, and a
// function that takes fewer doesn't look at the rest.
#include "cpu/arguments.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hcq {

namespace {

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// An argument as a register holds it: integers extended as their type asks, floats in the low bits.
inline uint64_t argument(ParamKind kind, const uint8_t* at) {
  // The usual two first, by branches that are predicted; a jump through the table often isn't.
  if (kind == ParamKind::pointer) return load<uint64_t>(at);
  if (kind == ParamKind::i32) return static_cast<uint64_t>(int64_t{load<int32_t>(at)});
  switch (kind) {
    case ParamKind::i8:
      return static_cast<uint64_t>(int64_t{load<int8_t>(at)});
    case ParamKind::u8:
      return load<uint8_t>(at);
    case ParamKind::boolean:
      return load<uint8_t>(at) != 0;
    case ParamKind::i16:
      return static_cast<uint64_t>(int64_t{load<int16_t>(at)});
    case ParamKind::u16:
    case ParamKind::f16:
    case ParamKind::bf16:
      return load<uint16_t>(at);
    case ParamKind::u32:
    case ParamKind::f32:
      return load<uint32_t>(at);
    default:
      return load<uint64_t>(at);
  }
}

bool is_float(ParamKind kind) {
  return kind == ParamKind::f16 || kind == ParamKind::bf16 || kind == ParamKind::f32 || kind == ParamKind::f64;
}

template <size_t>
using Integer = uint64_t;
template <size_t>
using Float = double;

double as_double(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <size_t... I, size_t... F, size_t... S>
inline void call_all(void* entry, const uint64_t* v, std::index_sequence<I...>, std::index_sequence<F...>,
                     std::index_sequence<S...>) {
  reinterpret_cast<void (*)(Integer<I>..., Float<F>..., Integer<S>...)>(entry)(
      v[I]..., as_double(v[kIntegerRegisters + F])..., v[kRegisters + S]...);
}

template <size_t... I>
inline void call_registers(void* entry, const uint64_t* v, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(Integer<I>...)>(entry)(v[I]...);
}

void call_in_integer_registers(void* entry, const uint64_t* v) {
  call_registers(entry, v, std::make_index_sequence<kIntegerRegisters>());
}

template <size_t Stack>
void call_with_stack(void* entry, const uint64_t* v) {
  call_all(entry, v, std::make_index_sequence<kIntegerRegisters>(), std::make_index_sequence<kFloatRegisters>(),
           std::make_index_sequence<Stack>());
}

struct Size {
  size_t stack;
  ArgumentPlan::Caller caller;
};
constexpr Size kCallers[] = {{0, call_with_stack<0>},
                             {8, call_with_stack<8>},
                             {32, call_with_stack<32>},
                             {128, call_with_stack<128>},
                             {kMaxArguments, call_with_stack<kMaxArguments>}};

// The caller for so many stack slots; clears those it passes beyond them.
ArgumentPlan::Caller caller_for(size_t stack, uint64_t* values) {
  const Size* size = kCallers;
  while (size->stack < stack) ++size;
  std::fill(values + kRegisters + stack, values + kRegisters + size->stack, 0);
  return size->caller;
}

}  // namespace

template <size_t... I>
void ArgumentPlan::call_slots(void* entry, const Step*, const uint8_t* kernargs) {
  reinterpret_cast<void (*)(Integer<I>...)>(entry)(load<uint64_t>(kernargs + I * 8)...);
}

template <size_t... I>
void ArgumentPlan::call_integers(void* entry, const Step* steps, const uint8_t* kernargs) {
  reinterpret_cast<void (*)(Integer<I>...)>(entry)(argument(steps[I].kind, kernargs + steps[I].offset)...);
}

template <size_t... I>
ArgumentPlan::Direct ArgumentPlan::direct(bool slots, std::index_sequence<I...>) {
  return slots ? call_slots<I...> : call_integers<I...>;
}

template <size_t... N>
ArgumentPlan::Direct ArgumentPlan::direct(bool slots, size_t count, std::index_sequence<N...>) {
  Direct found = nullptr;
  ((count == N ? void(found = direct(slots, std::make_index_sequence<N>())) : void()), ...);
  return found;
}

ArgumentPlan::ArgumentPlan(const std::vector<Param>& params) : typed_(true) {
  size_t integers = 0, floats = 0;
  bool slots = true;
  for (const auto& p : params) {
    size_t to;
    if (is_float(p.kind))
      to = floats < kFloatRegisters ? kIntegerRegisters + floats++ : kRegisters + stack_++;
    else
      to = integers < kIntegerRegisters ? integers++ : kRegisters + stack_++;
    floats_ = floats_ || is_float(p.kind);
    slots = slots && p.size == 8;
    steps_.push_back({p.kind, static_cast<uint16_t>(to), p.offset});
  }
  if (!floats_ && !stack_) direct_ = direct(slots, params.size(), std::make_index_sequence<kIntegerRegisters + 1>());
}

ArgumentPlan::Caller ArgumentPlan::spread(const uint8_t* kernargs, ArgumentValues* out) const {
  uint64_t* v = out->values;
  if (!typed_) {
    size_t count = std::min<uint64_t>(load<uint64_t>(kernargs), kMaxArguments);
    size_t direct = std::min(count, kIntegerRegisters);
    std::fill(v + direct, v + kRegisters, 0);
    for (size_t i = 0; i < count; ++i)
      v[i < kIntegerRegisters ? i : kRegisters + i - kIntegerRegisters] = load<uint64_t>(kernargs + 8 + i * 8);
    return count <= kIntegerRegisters ? call_in_integer_registers : caller_for(count - direct, v);
  }
  if (stack_ || floats_)
    std::fill(v, v + kRegisters, 0);
  else
    std::fill(v, v + kIntegerRegisters, 0);
  for (const Step& step : steps_) v[step.to] = argument(step.kind, kernargs + step.offset);
  return stack_ || floats_ ? caller_for(stack_, v) : call_in_integer_registers;
}

void ArgumentPlan::call_once(void* entry, const uint8_t* kernargs) const {
  if (direct_) return direct_(entry, steps_.data(), kernargs);
  ArgumentValues values;
  Caller caller = spread(kernargs, &values);
  caller(entry, values.values);
}

}  // namespace hcq
