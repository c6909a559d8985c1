// Relocations of x86-64 and aarch64 ELF objects: what each needs, and how it is applied. Facts are those of the System
// V ABI's processor supplements (x86-64 psABI 4.4 "Relocation", ELF for the Arm 64-bit Architecture 5.7). Both are
// always compiled, so that either can be tested on any host.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hcq {

enum class Needs : uint8_t {
  unknown,   // not supported
  nothing,   // a marker, no effect
  address,   // the symbol's address
  function,  // the symbol's address, or that of a stub which jumps there, when it is far away
  slot,      // a slot of the global offset table that holds the symbol's address
  table,     // the table's own address
  thread,    // thread-local storage, which is refused
};

struct Place {
  uint8_t* write;    // where the bytes can be written
  uint64_t address;  // P: where they are read or run
};

// For the value of one relocation; names as in the ABI documents.
struct Operands {
  uint64_t symbol;  // S, or L where a stub stands in
  int64_t addend;   // A
  uint64_t slot;    // address of the symbol's table slot; 0 without one
  uint64_t table;   // GOT: address of the table
};

Needs needs_x86_64(uint32_t type);
Needs needs_aarch64(uint32_t type);
size_t width_x86_64(uint32_t type);  // bytes that are patched
size_t width_aarch64(uint32_t type);
// False when the value doesn't fit.
bool apply_x86_64(uint32_t type, const Place&, const Operands&);
bool apply_aarch64(uint32_t type, const Place&, const Operands&);

}  // namespace hcq
