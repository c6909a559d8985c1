// A machine with a stack, for addresses.
#include "run/whose.hpp"

#include <algorithm>
#include <cstring>

namespace cudacpu {

namespace {

// As accesses.py numbers them.
enum Code : uint8_t {
  constant,
  tid,
  ntid,
  ctaid,
  nctaid,
  linear,
  parameter,
  shared,
  add,
  sub,
  mul,
  band,
  bor,
  bxor,
  shl,
  shr,
  sar,
  udiv,
  urem,
  sdiv,
  srem,
  umin,
  umax,
  smin,
  smax,
  zext,
  sext,
  count
};

constexpr size_t kDeep = 64;

template <class T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct Numbers {
  const Block& block;
  uint32_t tid[3], linear;
};

uint64_t combined(Code code, uint64_t a, uint64_t b) {
  auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  switch (code) {
    case add:
      return a + b;
    case sub:
      return a - b;
    case mul:
      return a * b;
    case band:
      return a & b;
    case bor:
      return a | b;
    case bxor:
      return a ^ b;
    case shl:
      return b < 64 ? a << b : 0;
    case shr:
      return b < 64 ? a >> b : 0;
    case sar:
      return static_cast<uint64_t>(x >> std::min<uint64_t>(b, 63));
    case udiv:
      return b ? a / b : ~uint64_t{0};
    case urem:
      return b ? a % b : ~uint64_t{0};
    case sdiv:
      return b && b != ~uint64_t{0} ? static_cast<uint64_t>(x / y) : (b ? 0 - a : ~uint64_t{0});
    case srem:
      return b && b != ~uint64_t{0} ? static_cast<uint64_t>(x % y) : (b ? 0 : ~uint64_t{0});
    case umin:
      return std::min(a, b);
    case umax:
      return std::max(a, b);
    case smin:
      return x < y ? a : b;
    default:
      return x < y ? b : a;  // smax
  }
}

uint64_t extended(uint64_t value, uint8_t bits, bool sign) {
  if (bits == 0 || bits >= 64) return value;
  value <<= 64 - bits;
  return sign ? static_cast<uint64_t>(static_cast<int64_t>(value) >> (64 - bits)) : value >> (64 - bits);
}

uint64_t argument(const Grid& grid, const uint8_t* at) {
  uint64_t value = 0;
  std::memcpy(&value, grid.params + read<uint16_t>(at), std::min<size_t>(at[2], sizeof value));
  return value;
}

// `round` is how often the loop went round in which something counts. False: the program is none. It was written for
// this, so that is not expected.
bool run(const uint8_t* at, const uint8_t* end, const Numbers& n, uint64_t round, uint64_t* result) {
  uint64_t stack[kDeep];
  size_t used = 0;
  const Grid& grid = *n.block.grid;
  while (at != end) {
    auto code = static_cast<Code>(*at++);
    if (code == count) {
      if (used < 2) return false;
      --used;
      stack[used - 1] += round * stack[used];
      continue;
    }
    if (code >= zext) {
      if (!used) return false;
      stack[used - 1] = extended(stack[used - 1], *at++, code == sext);
      continue;
    }
    if (code >= add) {
      if (used < 2) return false;
      --used;
      stack[used - 1] = combined(code, stack[used - 1], stack[used]);
      continue;
    }
    if (used == kDeep) return false;
    uint64_t& top = stack[used++];
    switch (code) {
      case constant:
        top = read<uint64_t>(at);
        at += 8;
        break;
      case tid:
        top = n.tid[*at++];
        break;
      case ntid:
        top = grid.ntid[*at++];
        break;
      case ctaid:
        top = n.block.ctaid[*at++];
        break;
      case nctaid:
        top = grid.nctaid[*at++];
        break;
      case linear:
        top = n.linear;
        break;
      case parameter:
        top = argument(grid, at);
        at += 3;
        break;
      default:  // shared
        top = reinterpret_cast<uint64_t>(n.block.shared);
    }
  }
  *result = stack[0];
  return used == 1;
}

// `step` is how far the address moves with each round.
bool is_it(uint64_t address, uint64_t step, uint32_t bytes, const Failed& failed) {
  if (failed.has_address) {
    auto distance = static_cast<int64_t>(failed.address - address), each = static_cast<int64_t>(step);
    if (each == 0) return failed.address - address < bytes;
    if (each > 0) return distance >= 0 && distance % each < bytes;
    int64_t over = -distance % -each;  // beyond it, going down
    return distance < 0 ? over == 0 || -each - over < bytes : distance < bytes;
  }
  if (step) return false;
  if (failed.misaligned) return address % bytes != 0;
  int64_t upper = static_cast<int64_t>(address) >> 47;
  return upper != 0 && upper != -1;
}

struct Access {
  uint32_t line, used, bytes;
  const uint8_t *begin, *end;
};

std::vector<Access> all(const std::vector<uint8_t>& accesses) {
  std::vector<Access> found;
  for (const uint8_t *at = accesses.data(), *end = at + accesses.size(); at != end;) {
    const uint8_t* program = at + 16;
    found.push_back({read<uint32_t>(at), read<uint32_t>(at + 4), read<uint32_t>(at + 8), program,
                     program + read<uint32_t>(at + 12)});
    at = found.back().end;
  }
  return found;
}

// The threads whose access it may have been. `stepping`: also where the address moves as a loop goes round.
Whose threads_of(const Access& access, const Block& block, const Failed& failed, bool stepping) {
  const Grid& grid = *block.grid;
  const uint32_t count = grid.ntid[0] * grid.ntid[1] * grid.ntid[2];
  Whose found{0, 0, access.line};
  Numbers n{block, {0, 0, 0}, 0};
  for (; n.linear < count; ++n.linear) {
    n.tid[0] = n.linear % grid.ntid[0];
    n.tid[1] = n.linear / grid.ntid[0] % grid.ntid[1];
    n.tid[2] = n.linear / grid.ntid[0] / grid.ntid[1];
    uint64_t address = 0, next = 0;
    if (!run(access.begin, access.end, n, 0, &address) || !run(access.begin, access.end, n, 1, &next)) break;
    const bool is = (stepping || next == address) && is_it(address, next - address, access.bytes, failed);
    if (is && found.count++ == 0) found.first = n.linear;
  }
  return found;
}

// Of the accesses that it must have been one of: the only one whose address it may be.
Whose only(const std::vector<Access>& accesses, const Block& block, const Failed& failed) {
  Whose found;
  for (const Access& access : accesses) {
    const Whose one = threads_of(access, block, failed, true);
    if (!one.count) continue;
    if (found.count) return {};
    found = one;
  }
  return found;
}

}  // namespace

Whose whose(const std::vector<uint8_t>& accesses, const Block& block, const Failed& failed) {
  std::vector<Access> nearest = all(accesses), here, feeding;
  for (const Access& access : nearest) {
    if (access.line == failed.line) here.push_back(access);
    if (access.used == failed.line) feeding.push_back(access);
  }
  // Processors read memory as they compute: an instruction that is no access may be that of what it reads.
  if (!here.empty()) return only(here, block, failed);
  if (!feeding.empty()) {
    if (const Whose found = only(feeding, block, failed); found.count) return found;
  }
  auto far = [&](const Access& a) { return a.line > failed.line ? a.line - failed.line : failed.line - a.line; };
  std::stable_sort(nearest.begin(), nearest.end(), [&](const Access& a, const Access& b) { return far(a) < far(b); });
  for (const Access& access : nearest) {
    if (const Whose found = threads_of(access, block, failed, false); found.count) return found;
  }
  return {};
}

}  // namespace cudacpu
