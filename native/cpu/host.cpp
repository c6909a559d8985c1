// Reading the processor's identification, in its raw words: cheaper than /proc/cpuinfo on a machine of many cores.
#include "cpu/host.hpp"

#include <cstdint>
#include <cstdio>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace hcq {

namespace {

void append(std::string* to, uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof text, " %x", word);
  *to += text;
}

}  // namespace

#if defined(__x86_64__)

std::string cpu_features() {
  std::string result;
  uint32_t a, b, c, d;
  auto words = [&result](std::initializer_list<uint32_t> list) {
    for (uint32_t word : list) append(&result, word);
  };
  if (__get_cpuid(0, &a, &b, &c, &d)) words({b, c, d});  // vendor
  bool has_state = false;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    has_state = c & bit_OSXSAVE;
    words({a & 0x0fff3fff, c, d});  // family, model and stepping; b holds the number of the core that was asked
  }
  for (uint32_t leaf : {0u, 1u})
    if (__get_cpuid_count(7, leaf, &a, &b, &c, &d)) words({a, b, c, d});
  if (__get_cpuid_count(13, 1, &a, &b, &c, &d)) words({a});
  for (uint32_t leaf : {0x14u, 0x19u})
    if (__get_cpuid_count(leaf, 0, &a, &b, &c, &d)) words({b});
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words({c, d});
  if (__get_cpuid(0x80000008, &a, &b, &c, &d)) words({b});
  if (has_state) {
    // Which register state the operating system saves: without it a feature can't be used.
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words({low});
  }
  return result.empty() ? result : result.substr(1);
}

#elif defined(__aarch64__)

std::string cpu_features() {
  std::string result;
  auto capabilities = getauxval(AT_HWCAP);
  for (uint64_t word : {uint64_t{capabilities}, uint64_t{getauxval(AT_HWCAP2)}}) {
    append(&result, static_cast<uint32_t>(word >> 32));
    append(&result, static_cast<uint32_t>(word));
  }
  if (capabilities & (1ul << 11)) {  // HWCAP_CPUID: the kernel answers for this register
    uint64_t model;
    __asm__ volatile("mrs %0, midr_el1" : "=r"(model));
    append(&result, static_cast<uint32_t>(model));
  }
  return result.substr(1);
}

#else

std::string cpu_features() { return {}; }

#endif

}  // namespace hcq
