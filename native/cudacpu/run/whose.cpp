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
  sext
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

// False: the program is none. It was written for this, so that is not expected.
bool run(const uint8_t* at, const uint8_t* end, const Numbers& n, uint64_t* result) {
  uint64_t stack[kDeep];
  size_t used = 0;
  const Grid& grid = *n.block.grid;
  while (at != end) {
    auto code = static_cast<Code>(*at++);
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

bool is_it(uint64_t address, uint32_t bytes, const Failed& failed) {
  if (failed.has_address) return failed.address - address < bytes;
  if (failed.misaligned) return address % bytes != 0;
  int64_t upper = static_cast<int64_t>(address) >> 47;
  return upper != 0 && upper != -1;
}

struct Access {
  uint32_t line, bytes;
  const uint8_t *begin, *end;
};

// All, those nearest to a line first.
std::vector<Access> nearest(const std::vector<uint8_t>& accesses, uint32_t line) {
  std::vector<Access> found;
  for (const uint8_t *at = accesses.data(), *end = at + accesses.size(); at != end;) {
    const auto length = read<uint32_t>(at + 8);
    Access access{read<uint32_t>(at), read<uint32_t>(at + 4), at + 12, at + 12 + length};
    found.push_back(access);
    at = access.end;
  }
  auto far = [line](const Access& a) { return a.line > line ? a.line - line : line - a.line; };
  std::stable_sort(found.begin(), found.end(), [&](const Access& a, const Access& b) { return far(a) < far(b); });
  return found;
}

}  // namespace

Whose whose(const std::vector<uint8_t>& accesses, const Block& block, const Failed& failed) {
  const Grid& grid = *block.grid;
  const uint32_t count = grid.ntid[0] * grid.ntid[1] * grid.ntid[2];
  for (const Access& access : nearest(accesses, failed.line)) {
    Whose found{0, 0, access.line};
    Numbers n{block, {0, 0, 0}, 0};
    for (; n.linear < count; ++n.linear) {
      n.tid[0] = n.linear % grid.ntid[0];
      n.tid[1] = n.linear / grid.ntid[0] % grid.ntid[1];
      n.tid[2] = n.linear / grid.ntid[0] / grid.ntid[1];
      uint64_t address = 0;
      const bool is = run(access.begin, access.end, n, &address) && is_it(address, access.bytes, failed);
      if (is && found.count++ == 0) found.first = n.linear;
    }
    if (found.count) return found;
  }
  return {};
}

}  // namespace cudacpu
