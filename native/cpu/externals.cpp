// Resolving of external symbols, and the float conversions that not every C library brings. Nothing is cached: a loaded
// image keeps the addresses.
#include "cpu/externals.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "cpu/fiber.hpp"

namespace hcq {

namespace {

// A half-width float travels in the low 16 bits of a vector register, on x86-64 and aarch64 alike, which is where a
// `float` travels too: so these need no compiler that knows the types.
uint16_t low16(float carrier) {
  uint16_t bits;
  std::memcpy(&bits, &carrier, sizeof bits);
  return bits;
}

float carry(uint16_t bits) {
  uint32_t wide = bits;
  float carrier;
  std::memcpy(&carrier, &wide, sizeof carrier);
  return carrier;
}

// Rounds a double to a format of E exponent and M mantissa bits, to nearest, ties to even. One rounding: a float widens
// to double exactly.
template <int E, int M>
uint16_t narrow(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  auto sign = static_cast<uint16_t>((bits >> 63) << 15);
  int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  constexpr uint16_t infinity = ((1 << E) - 1) << M;
  if (exponent == 0x7ff) {
    if (!mantissa) return sign | infinity;
    return static_cast<uint16_t>(sign | infinity | (1 << (M - 1)) | (mantissa >> (52 - M)));
  }
  int scaled = exponent - 1023 + ((1 << (E - 1)) - 1);
  int shift = 52 - M + (scaled <= 0 ? 1 - scaled : 0);
  if (shift >= 54) return sign;
  mantissa |= uint64_t{1} << 52;
  uint64_t rounded = mantissa >> shift;
  uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  // The implicit bit of a normal number carries into the exponent by itself.
  if (scaled > 0) rounded += static_cast<uint64_t>(scaled - 1) << M;
  return rounded >= infinity ? sign | infinity : static_cast<uint16_t>(sign | rounded);
}

float widen_f16(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  if (exponent == 31) {
    uint32_t wide = sign | 0x7f800000 | (mantissa << 13) | (mantissa ? 0x400000 : 0);
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  if (exponent == 0) {
    float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  uint32_t wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

float widen_bf16(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// The names are those of libgcc and compiler-rt; the first argument and the result as they are passed in registers.
float extendhfsf2(float h) { return widen_f16(low16(h)); }
double extendhfdf2(float h) { return widen_f16(low16(h)); }
float truncsfhf2(float x) { return carry(narrow<5, 10>(x)); }
float truncdfhf2(double x) { return carry(narrow<5, 10>(x)); }
float extendbfsf2(float h) { return widen_bf16(low16(h)); }
float truncsfbf2(float x) { return carry(narrow<8, 7>(x)); }
float truncdfbf2(double x) { return carry(narrow<8, 7>(x)); }
// Older names, in integer registers.
float gnu_h2f_ieee(uint16_t h) { return widen_f16(h); }
uint16_t gnu_f2h_ieee(float x) { return narrow<5, 10>(x); }

struct Own {
  const char* name;
  void* address;
};

const Own kOwn[] = {
    {"hcq_barrier", reinterpret_cast<void*>(hcq_barrier)},
    {"__extendhfsf2", reinterpret_cast<void*>(extendhfsf2)},
    {"__extendhfdf2", reinterpret_cast<void*>(extendhfdf2)},
    {"__truncsfhf2", reinterpret_cast<void*>(truncsfhf2)},
    {"__truncdfhf2", reinterpret_cast<void*>(truncdfhf2)},
    {"__extendbfsf2", reinterpret_cast<void*>(extendbfsf2)},
    {"__truncsfbf2", reinterpret_cast<void*>(truncsfbf2)},
    {"__truncdfbf2", reinterpret_cast<void*>(truncdfbf2)},
    {"__gnu_h2f_ieee", reinterpret_cast<void*>(gnu_h2f_ieee)},
    {"__gnu_f2h_ieee", reinterpret_cast<void*>(gnu_f2h_ieee)},
};

}  // namespace

void* external_address(const std::string& name) {
  for (const auto& own : kOwn)
    if (name == own.name) return own.address;
  if (void* found = dlsym(RTLD_DEFAULT, name.c_str())) return found;
  // Not everything that a C program links by default is loaded into this process.
  for (const char* file : {"libm.so.6", "libgcc_s.so.1"}) {
    void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);  // stays open: code that was loaded calls into it
    if (!library) continue;
    if (void* found = dlsym(library, name.c_str())) return found;
  }
  return nullptr;
}

}  // namespace hcq
