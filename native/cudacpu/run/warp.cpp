// Semantics: PTX ISA, "Parallel Synchronization and Communication Instructions".
#include "run/warp.hpp"

#include <cstring>

#include "run/check.hpp"

namespace cudacpu {

namespace {

// The lowest lane of a mask, taken out of it.
uint32_t take(uint32_t& mask) {
  uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  mask &= mask - 1;
  return lane;
}

void shuffle(Thread* threads, uint32_t members) {
  for (uint32_t left = members; left;) {
    uint32_t lane = take(left);
    Thread& t = threads[lane];
    uint32_t offset = t.a[1] & 31, clamp = t.a[2] & 31, segment = t.a[2] >> 8 & 31;
    uint32_t most = (lane & segment) | (clamp & ~segment & 31), least = lane & segment;
    uint32_t from = 0;
    bool within = false;
    switch (t.a[3]) {
      case 0:  // up
        from = lane - offset;
        within = static_cast<int32_t>(from) >= static_cast<int32_t>(most);
        break;
      case 1:  // down
        from = lane + offset;
        within = from <= most;
        break;
      case 2:  // butterfly
        from = lane ^ offset;
        within = from <= most;
        break;
      default:  // by index
        from = least | (offset & ~segment & 31);
        within = from <= most;
    }
    if (!within) from = lane;
    // From a lane that takes no part the result is undefined; here it is the thread's own value.
    t.r[0] = members >> from & 1 ? threads[from].a[0] : t.a[0];
    t.r[1] = within;
  }
}

void vote(Thread* threads, uint32_t members) {
  uint32_t yes = 0;
  for (uint32_t left = members; left;) {
    uint32_t lane = take(left);
    yes |= (threads[lane].a[0] ? 1u : 0u) << lane;
  }
  for (uint32_t left = members; left;) {
    Thread& t = threads[take(left)];
    switch (t.a[1]) {
      case 0:
        t.r[0] = yes == members;
        break;
      case 1:
        t.r[0] = yes != 0;
        break;
      case 2:
        t.r[0] = yes == members || yes == 0;
        break;
      default:
        t.r[0] = yes;
    }
  }
}

void match(Thread* threads, uint32_t members) {
  for (uint32_t left = members; left;) {
    Thread& t = threads[take(left)];
    uint32_t same = 0;
    for (uint32_t others = members; others;) {
      uint32_t lane = take(others);
      same |= (threads[lane].a[0] == t.a[0] ? 1u : 0u) << lane;
    }
    bool all = same == members;
    t.r[0] = t.a[1] && !all ? 0 : same;
    t.r[1] = all;
  }
}

uint32_t combine(uint32_t kind, uint32_t a, uint32_t b) {
  auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
  switch (kind) {
    case 0:
      return a + b;
    case 1:
      return x < y ? a : b;
    case 2:
      return x > y ? a : b;
    case 3:
      return a < b ? a : b;
    case 4:
      return a > b ? a : b;
    case 5:
      return a & b;
    case 6:
      return a | b;
    default:
      return a ^ b;
  }
}

void redux(Thread* threads, uint32_t members) {
  uint32_t left = members, first = take(left);
  auto result = static_cast<uint32_t>(threads[first].a[0]);
  auto kind = static_cast<uint32_t>(threads[first].a[1]);
  while (left) result = combine(kind, result, static_cast<uint32_t>(threads[take(left)].a[0]));
  for (left = members; left;) threads[take(left)].r[0] = result;
}

// All read what all gave, from one buffer.
void exchange_shared(Thread* threads, uint32_t members, std::vector<uint8_t>& buffer) {
  for (uint32_t left = members; left;) {
    uint32_t lane = take(left);
    Thread& t = threads[lane];
    if (buffer.size() < kLanes * t.a[1]) buffer.resize(kLanes * t.a[1]);
    std::memcpy(buffer.data() + lane * t.a[1], reinterpret_cast<const void*>(t.a[0]), t.a[1]);
  }
  for (uint32_t left = members; left;) threads[take(left)].r[0] = reinterpret_cast<uint64_t>(buffer.data());
}

void exchange(Thread* threads, uint32_t members, std::vector<uint8_t>& buffer) {
  if (!threads[__builtin_ctz(members)].a[2]) return exchange_shared(threads, members, buffer);
  for (uint32_t left = members; left;) {
    Thread& t = threads[take(left)];
    auto* to = reinterpret_cast<uint8_t*>(t.a[2]);
    for (uint32_t others = members; others;) {
      uint32_t lane = take(others);
      std::memcpy(to + lane * t.a[1], reinterpret_cast<const void*>(threads[lane].a[0]), t.a[1]);
    }
  }
}

void carry_out(Warp& warp, uint32_t members, Op op) {
  Thread* threads = warp.threads;
  switch (op) {
    case Op::shuffle:
      return shuffle(threads, members);
    case Op::vote:
      return vote(threads, members);
    case Op::match:
      return match(threads, members);
    case Op::redux:
      return redux(threads, members);
    case Op::exchange:
      return exchange(threads, members, warp.exchanged);
    default:
      return;  // warp_sync: that they came is all
  }
}

}  // namespace

bool complete_operations(Warp& warp, Check* check) {
  bool any = false;
  uint32_t live = warp.live();
  for (uint32_t left = warp.waiting; left;) {
    const Thread& first = warp.threads[take(left)];
    // Those that returned are not waited for. The thread itself takes part whatever its mask says.
    uint32_t members = (first.mask & live) | 1u << (first.linear % kLanes);
    uint32_t here = 0;
    for (uint32_t others = members & warp.waiting; others;) {
      uint32_t lane = take(others);
      const Thread& other = warp.threads[lane];
      here |= (other.op == first.op && other.mask == first.mask ? 1u : 0u) << lane;
    }
    if (here != members) continue;
    carry_out(warp, members, first.op);
    if (check && first.op == Op::warp_sync) check->warp_barrier(warp, members);
    warp.waiting &= ~members;
    warp.ready |= members;
    left &= ~members;
    any = true;
  }
  return any;
}

bool complete_asking(Warp& warp) {
  if (!warp.asking) return false;
  for (uint32_t left = warp.asking; left;) {
    uint32_t line = warp.threads[__builtin_ctz(left)].line, together = 0;
    for (uint32_t others = left; others;) {
      uint32_t lane = take(others);
      together |= (warp.threads[lane].line == line ? 1u : 0u) << lane;
    }
    for (uint32_t members = together; members;) warp.threads[take(members)].r[0] = together;
    left &= ~together;
  }
  warp.ready |= warp.asking;
  warp.asking = 0;
  return true;
}

}  // namespace cudacpu
