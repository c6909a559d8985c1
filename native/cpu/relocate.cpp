// Applying relocations. No knowledge of sections, symbols or memory: those are the loader's.
#include "cpu/relocate.hpp"

#include <elf.h>

#include <cstring>

namespace hcq {

namespace {

template <class T>
void put(const Place& at, uint64_t value) {
  T narrow = static_cast<T>(value);
  std::memcpy(at.write, &narrow, sizeof narrow);
}

bool fits_signed(uint64_t value, unsigned bits) {
  auto v = static_cast<int64_t>(value);
  return v >= -(int64_t{1} << (bits - 1)) && v < (int64_t{1} << (bits - 1));
}

bool put_signed32(const Place& at, uint64_t value) {
  put<int32_t>(at, value);
  return fits_signed(value, 32);
}

uint64_t page(uint64_t address) { return address & ~uint64_t{4095}; }

// Replaces `bits` bits of an A64 instruction, starting at `shift`.
void set_field(const Place& at, unsigned shift, unsigned bits, uint64_t value) {
  uint32_t word;
  std::memcpy(&word, at.write, 4);
  uint32_t mask = ((uint32_t{1} << bits) - 1) << shift;
  word = (word & ~mask) | ((static_cast<uint32_t>(value) << shift) & mask);
  std::memcpy(at.write, &word, 4);
}

// ADR and ADRP: a signed 21-bit immediate, its low two bits apart.
bool set_adr(const Place& at, uint64_t value) {
  set_field(at, 29, 2, value & 3);
  set_field(at, 5, 19, (value >> 2) & 0x7ffff);
  return fits_signed(value, 21);
}

// A branch or literal load: a signed word offset.
bool set_branch(const Place& at, unsigned shift, unsigned bits, uint64_t distance) {
  set_field(at, shift, bits, (distance >> 2) & ((uint64_t{1} << bits) - 1));
  return (distance & 3) == 0 && fits_signed(distance, bits + 2);
}

// The low 12 bits of an address in a load or store that scales them by the access size.
bool set_low12(const Place& at, uint64_t address, unsigned scale) {
  set_field(at, 10, 12, (address & 4095) >> scale);
  return (address & ((uint64_t{1} << scale) - 1)) == 0;
}

}  // namespace

Needs needs_x86_64(uint32_t type) {
  switch (type) {
    case R_X86_64_NONE:
      return Needs::nothing;
    case R_X86_64_64:
    case R_X86_64_32:
    case R_X86_64_32S:
    case R_X86_64_PC32:  // of data as well, for which no stub can stand in
    case R_X86_64_PC64:
    case R_X86_64_GOTOFF64:
      return Needs::address;
    case R_X86_64_PLT32:
    case R_X86_64_PLTOFF64:
      return Needs::function;
    case R_X86_64_GOT32:
    case R_X86_64_GOT64:
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCREL64:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return Needs::slot;
    case R_X86_64_GOTPC32:
    case R_X86_64_GOTPC64:
      return Needs::table;
    case R_X86_64_TLSGD:
    case R_X86_64_TLSLD:
    case R_X86_64_DTPMOD64:
    case R_X86_64_DTPOFF64:
    case R_X86_64_DTPOFF32:
    case R_X86_64_TPOFF64:
    case R_X86_64_TPOFF32:
    case R_X86_64_GOTTPOFF:
    case R_X86_64_GOTPC32_TLSDESC:
    case R_X86_64_TLSDESC_CALL:
    case R_X86_64_TLSDESC:
      return Needs::thread;
    default:
      return Needs::unknown;
  }
}

size_t width_x86_64(uint32_t type) {
  switch (type) {
    case R_X86_64_NONE:
      return 0;
    case R_X86_64_64:
    case R_X86_64_PC64:
    case R_X86_64_GOTOFF64:
    case R_X86_64_GOT64:
    case R_X86_64_GOTPCREL64:
    case R_X86_64_GOTPC64:
    case R_X86_64_PLTOFF64:
      return 8;
    default:
      return 4;
  }
}

bool apply_x86_64(uint32_t type, const Place& at, const Operands& o) {
  uint64_t a = static_cast<uint64_t>(o.addend);
  uint64_t value = o.symbol + a;
  switch (type) {
    case R_X86_64_NONE:
      return true;
    case R_X86_64_64:
      put<uint64_t>(at, value);
      return true;
    case R_X86_64_32:
      put<uint32_t>(at, value);
      return value <= UINT32_MAX;
    case R_X86_64_32S:
      return put_signed32(at, value);
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return put_signed32(at, value - at.address);
    case R_X86_64_PC64:
      put<uint64_t>(at, value - at.address);
      return true;
    case R_X86_64_GOTOFF64:
    case R_X86_64_PLTOFF64:
      put<uint64_t>(at, value - o.table);
      return true;
    case R_X86_64_GOT32:
      return put_signed32(at, o.slot - o.table + a);
    case R_X86_64_GOT64:
      put<uint64_t>(at, o.slot - o.table + a);
      return true;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return put_signed32(at, o.slot + a - at.address);
    case R_X86_64_GOTPCREL64:
      put<uint64_t>(at, o.slot + a - at.address);
      return true;
    case R_X86_64_GOTPC32:
      return put_signed32(at, o.table + a - at.address);
    case R_X86_64_GOTPC64:
      put<uint64_t>(at, o.table + a - at.address);
      return true;
    default:
      return false;
  }
}

Needs needs_aarch64(uint32_t type) {
  switch (type) {
    case R_AARCH64_NONE:
    case 256:  // the withdrawn number of NONE
      return Needs::nothing;
    case R_AARCH64_ABS64:
    case R_AARCH64_ABS32:
    case R_AARCH64_PREL64:
    case R_AARCH64_PREL32:
    case R_AARCH64_MOVW_UABS_G0:
    case R_AARCH64_MOVW_UABS_G0_NC:
    case R_AARCH64_MOVW_UABS_G1:
    case R_AARCH64_MOVW_UABS_G1_NC:
    case R_AARCH64_MOVW_UABS_G2:
    case R_AARCH64_MOVW_UABS_G2_NC:
    case R_AARCH64_MOVW_UABS_G3:
    case R_AARCH64_LD_PREL_LO19:
    case R_AARCH64_ADR_PREL_LO21:
    case R_AARCH64_ADR_PREL_PG_HI21:
    case R_AARCH64_ADR_PREL_PG_HI21_NC:
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_LDST16_ABS_LO12_NC:
    case R_AARCH64_LDST32_ABS_LO12_NC:
    case R_AARCH64_LDST64_ABS_LO12_NC:
    case R_AARCH64_LDST128_ABS_LO12_NC:
    case R_AARCH64_TSTBR14:
    case R_AARCH64_CONDBR19:
      return Needs::address;
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26:
    case 314:  // PLT32
      return Needs::function;
    case R_AARCH64_ADR_GOT_PAGE:
    case R_AARCH64_LD64_GOT_LO12_NC:
    case R_AARCH64_LD64_GOTPAGE_LO15:
      return Needs::slot;
    default:
      return type >= 512 && type <= 573 ? Needs::thread : Needs::unknown;
  }
}

size_t width_aarch64(uint32_t type) {
  if (needs_aarch64(type) == Needs::nothing) return 0;
  return type == R_AARCH64_ABS64 || type == R_AARCH64_PREL64 ? 8 : 4;
}

bool apply_aarch64(uint32_t type, const Place& at, const Operands& o) {
  uint64_t value = o.symbol + static_cast<uint64_t>(o.addend);
  uint64_t slot = o.slot + static_cast<uint64_t>(o.addend);
  switch (type) {
    case R_AARCH64_NONE:
    case 256:
      return true;
    case R_AARCH64_ABS64:
      put<uint64_t>(at, value);
      return true;
    case R_AARCH64_ABS32:
      put<uint32_t>(at, value);
      return value <= UINT32_MAX || fits_signed(value, 32);
    case R_AARCH64_PREL64:
      put<uint64_t>(at, value - at.address);
      return true;
    case R_AARCH64_PREL32:
    case 314:
      return put_signed32(at, value - at.address);
    case R_AARCH64_MOVW_UABS_G0:
    case R_AARCH64_MOVW_UABS_G0_NC:
      set_field(at, 5, 16, value & 0xffff);
      return type == R_AARCH64_MOVW_UABS_G0_NC || value >> 16 == 0;
    case R_AARCH64_MOVW_UABS_G1:
    case R_AARCH64_MOVW_UABS_G1_NC:
      set_field(at, 5, 16, (value >> 16) & 0xffff);
      return type == R_AARCH64_MOVW_UABS_G1_NC || value >> 32 == 0;
    case R_AARCH64_MOVW_UABS_G2:
    case R_AARCH64_MOVW_UABS_G2_NC:
      set_field(at, 5, 16, (value >> 32) & 0xffff);
      return type == R_AARCH64_MOVW_UABS_G2_NC || value >> 48 == 0;
    case R_AARCH64_MOVW_UABS_G3:
      set_field(at, 5, 16, value >> 48);
      return true;
    case R_AARCH64_LD_PREL_LO19:
    case R_AARCH64_CONDBR19:
      return set_branch(at, 5, 19, value - at.address);
    case R_AARCH64_TSTBR14:
      return set_branch(at, 5, 14, value - at.address);
    case R_AARCH64_JUMP26:
    case R_AARCH64_CALL26:
      return set_branch(at, 0, 26, value - at.address);
    case R_AARCH64_ADR_PREL_LO21:
      return set_adr(at, value - at.address);
    case R_AARCH64_ADR_PREL_PG_HI21:
      return set_adr(at, static_cast<uint64_t>(static_cast<int64_t>(page(value) - page(at.address)) >> 12));
    case R_AARCH64_ADR_PREL_PG_HI21_NC:
      set_adr(at, static_cast<uint64_t>(static_cast<int64_t>(page(value) - page(at.address)) >> 12));
      return true;
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC:
      return set_low12(at, value, 0);
    case R_AARCH64_LDST16_ABS_LO12_NC:
      return set_low12(at, value, 1);
    case R_AARCH64_LDST32_ABS_LO12_NC:
      return set_low12(at, value, 2);
    case R_AARCH64_LDST64_ABS_LO12_NC:
      return set_low12(at, value, 3);
    case R_AARCH64_LDST128_ABS_LO12_NC:
      return set_low12(at, value, 4);
    case R_AARCH64_ADR_GOT_PAGE:
      return set_adr(at, static_cast<uint64_t>(static_cast<int64_t>(page(slot) - page(at.address)) >> 12));
    case R_AARCH64_LD64_GOT_LO12_NC:
      return set_low12(at, slot, 3);
    case R_AARCH64_LD64_GOTPAGE_LO15: {
      uint64_t distance = slot - page(o.table);
      set_field(at, 10, 12, (distance >> 3) & 0xfff);
      return distance < 32768 && (distance & 7) == 0;
    }
    default:
      return false;
  }
}

}  // namespace hcq
