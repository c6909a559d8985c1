// The scheduler of a block's threads. Warps run one after the other, each until all its lanes stand at something that
// the warp alone can't complete; barriers complete when all warps have stopped.
#include "run/block.hpp"

#include <algorithm>

namespace cudacpu {

namespace {

// How LLVM lays out a coroutine's frame: the function that resumes it comes first.
void resume(void* frame) { (*static_cast<void (**)(void*)>(frame))(frame); }

const char* name_of(Op op) {
  static const char* const names[] = {"running",
                                      "a barrier",
                                      "a barrier",
                                      "a barrier's arrival",
                                      "a warp's barrier",
                                      "a shuffle",
                                      "a vote",
                                      "a match",
                                      "a reduction of the warp",
                                      "activemask",
                                      "an exchange of the warp",
                                      "its end",
                                      "a wait for memory"};
  return names[static_cast<uint32_t>(op)];
}

}  // namespace

bool BlockRun::prepare(const Grid* grid, const Code& code, void* owner) {
  code_ = code;
  count_ = grid->ntid[0] * grid->ntid[1] * grid->ntid[2];
  Needs needs{count_, grid->shared_bytes, grid->local_bytes, 0};
  if (code.kind == Kind::regions) needs.scratch = code.scratch_group + code.scratch_item * ((count_ + 63) / 64 * 64);
  if (!room_.prepare(needs)) return false;
  block_ = {grid, room_.shared(), {0, 0, 0}, 0, room_.local(), owner};
  check_.reset(code.checked ? new Check(&block_, count_) : nullptr);
  if (code.kind != Kind::threads) return true;
  Thread* threads = room_.threads();
  uint32_t number = 0;
  for (uint32_t z = 0; z < grid->ntid[2]; ++z) {
    for (uint32_t y = 0; y < grid->ntid[1]; ++y) {
      for (uint32_t x = 0; x < grid->ntid[0]; ++x, ++number) {
        Thread& t = threads[number];
        t = {};
        t.block = &block_;
        t.local = room_.local() + uint64_t{number} * grid->local_bytes;
        t.tid[0] = x, t.tid[1] = y, t.tid[2] = z;
        t.linear = number;
      }
    }
  }
  warps_.assign((count_ + kLanes - 1) / kLanes, Warp{});
  for (uint32_t i = 0; i < warps_.size(); ++i) {
    uint32_t lanes = std::min(kLanes, count_ - i * kLanes);
    warps_[i].threads = threads + i * kLanes;
    warps_[i].lanes = lanes == kLanes ? ~0u : (1u << lanes) - 1;
  }
  return true;
}

void BlockRun::begin(uint32_t x, uint32_t y, uint32_t z, uint32_t smid) {
  block_.ctaid[0] = x, block_.ctaid[1] = y, block_.ctaid[2] = z;
  block_.smid = smid;
  current_ = nullptr;
  if (check_) check_->begin();
  if (code_.kind != Kind::threads) return;
  room_.clear_frames();
  live_ = count_;
  used_ = 0;
  for (Warp& warp : warps_) {
    warp.ready = warp.lanes;
    warp.barrier = warp.waiting = warp.asking = warp.yielded = 0;
  }
  for (uint32_t i = 0; i < count_; ++i) room_.threads()[i].frame = nullptr;
  std::fill(std::begin(barriers_), std::end(barriers_), Barrier{});
}

void BlockRun::run_row(uint64_t first, uint64_t end) {
  const Grid& g = *block_.grid;
  const uint32_t* n = g.nctaid;
  uint32_t* at = block_.ctaid;
  at[0] = static_cast<uint32_t>(first % n[0]);
  at[1] = static_cast<uint32_t>(first / n[0] % n[1]);
  at[2] = static_cast<uint32_t>(first / n[0] / n[1]);
  // Which block it is stands in the Block; regions ask the context for their shape and memory alone.
  const GroupContext context = {{}, {}, {g.ntid[0], g.ntid[1], g.ntid[2]}, 0, room_.scratch()};
  const Block* arguments = &block_;
  const auto loop = reinterpret_cast<LoopEntry>(code_.entry);
  const auto regions = reinterpret_cast<RegionsEntry>(code_.entry);
  for (uint64_t left = end - first;;) {
    if (code_.kind == Kind::loop) {
      loop(&block_);
    } else {
      regions(&arguments, &context);
    }
    // relaxed: that it has failed is only a reason to stop early
    if (--left == 0 || __atomic_load_n(&g.failed, __ATOMIC_RELAXED)) return;
    if (++at[0] == n[0]) {
      at[0] = 0;
      if (++at[1] == n[1]) at[1] = 0, ++at[2];
    }
    if (check_) check_->begin();
  }
}

State BlockRun::step() {
  for (;;) {
    for (uint32_t i = 0; i < warps_.size(); ++i) {
      if (warps_[i].ready) run_warp(i);
    }
    if (!live_) return State::ended;
    if (complete_all()) continue;
    bool yielded = false, ready = false;
    for (Warp& warp : warps_) {
      yielded |= warp.yielded != 0;
      ready |= warp.ready != 0;
      warp.ready |= warp.yielded;
      warp.yielded = 0;
    }
    if (!ready) return yielded ? State::waiting : State::stuck;
  }
}

void BlockRun::run_warp(uint32_t number) {
  Warp& warp = warps_[number];
  auto entry = reinterpret_cast<ThreadEntry>(code_.entry);
  do {
    while (warp.ready) {
      uint32_t bit = warp.ready & -warp.ready;
      warp.ready &= ~bit;
      Thread& thread = warp.threads[__builtin_ctz(bit)];
      current_ = &thread;
      if (thread.frame) {
        resume(thread.frame);
      } else {
        thread.frame = entry(&thread);
      }
      settle(warp, number, bit, thread);
    }
    if (warp.waiting) complete_operations(warp, check_.get());
    if (!warp.ready) complete_asking(warp);
  } while (warp.ready);
  current_ = nullptr;
}

void BlockRun::settle(Warp& warp, uint32_t number, uint32_t bit, Thread& thread) {
  switch (thread.op) {
    case Op::barrier:
    case Op::barrier_red:
      warp.barrier |= bit;
      return arrive(number, thread);
    case Op::arrive:
      warp.ready |= bit;
      if (check_) check_->arrive(static_cast<uint32_t>(thread.a[0]) % kBarriers, thread.linear);
      return arrive(number, thread);
    case Op::exited:
      --live_;
      return;
    case Op::yield:
      warp.yielded |= bit;
      return;
    case Op::active_mask:
      warp.asking |= bit;
      return;
    default:
      warp.waiting |= bit;
  }
}

void BlockRun::arrive(uint32_t warp, const Thread& thread) {
  auto barrier = static_cast<uint32_t>(thread.a[0]), expected = static_cast<uint32_t>(thread.a[1]);
  Barrier& b = barriers_[barrier % kBarriers];
  ++b.arrived;
  b.warps |= 1u << warp;
  b.lanes[warp] |= 1u << thread.linear % kLanes;
  b.expected = expected;
  used_ |= 1u << barrier % kBarriers;
  // One with a count completes at once: a thread that only arrives may come for the next time before others run.
  if (expected) complete(barrier % kBarriers);
}

bool BlockRun::complete(uint32_t barrier) {
  Barrier& b = barriers_[barrier];
  uint32_t arrived = b.arrived;
  if (b.expected) {
    // Hardware counts whole warps: lanes that don't exist, or returned, come with the others of theirs.
    for (uint32_t left = b.warps; left; left &= left - 1) {
      int warp = __builtin_ctz(left);
      arrived += kLanes - static_cast<uint32_t>(__builtin_popcount(warps_[warp].live() | b.lanes[warp]));
    }
    if (arrived < b.expected) return false;
  } else if (arrived < live_) {
    return false;
  }
  release(barrier);
  return true;
}

bool BlockRun::complete_all() {
  bool any = false;
  for (uint32_t left = used_; left; left &= left - 1) any |= complete(static_cast<uint32_t>(__builtin_ctz(left)));
  return any;
}

void BlockRun::release(uint32_t barrier) {
  uint32_t popc = 0, members = 0;
  bool reduces = false;
  // Usually all of a warp stand at the same one.
  auto here = [&](const Warp& warp) {
    uint32_t mask = 0;
    for (uint32_t left = warp.barrier; left; left &= left - 1) {
      const Thread& t = warp.threads[__builtin_ctz(left)];
      if (t.a[0] % kBarriers != barrier) continue;
      mask |= left & -left;
      if (t.op != Op::barrier_red) continue;
      reduces = true;
      ++members;
      popc += t.a[3] ? 1 : 0;
    }
    return mask;
  };
  uint32_t masks[kLanes];
  uint32_t came = 0;
  for (uint32_t i = 0; i < warps_.size(); ++i) {
    masks[i] = warps_[i].barrier ? here(warps_[i]) : 0;
    came += static_cast<uint32_t>(__builtin_popcount(masks[i]));
  }
  if (check_) {
    check_->barrier(barrier, warps_.data(), masks, warps_.size(), came == live_, barriers_[barrier].expected != 0);
  }
  for (uint32_t i = 0; i < warps_.size(); ++i) {
    Warp& warp = warps_[i];
    warp.barrier &= ~masks[i];
    warp.ready |= masks[i];
    for (uint32_t left = reduces ? masks[i] : 0; left; left &= left - 1) {
      Thread& t = warp.threads[__builtin_ctz(left)];
      t.r[0] = t.a[2] == 0 ? popc : t.a[2] == 1 ? popc == members : popc != 0;
    }
  }
  barriers_[barrier] = {};
  used_ &= ~(1u << barrier);
}

std::string BlockRun::standing() const {
  struct Place {
    Op op;
    uint64_t barrier;
    uint32_t line, count, first;
  };
  std::vector<Place> places;
  for (const Warp& warp : warps_) {
    for (uint32_t left = warp.live(); left; left &= left - 1) {
      const Thread& t = warp.threads[__builtin_ctz(left)];
      bool barrier = t.op == Op::barrier || t.op == Op::barrier_red;
      uint64_t which = barrier ? t.a[0] : 0;
      auto same = [&](const Place& p) { return p.op == t.op && p.barrier == which && p.line == t.line; };
      auto found = std::find_if(places.begin(), places.end(), same);
      if (found == places.end()) {
        places.push_back({t.op, which, t.line, 1, t.linear});
      } else {
        ++found->count;
      }
    }
  }
  std::string text;
  for (const Place& p : places) {
    const uint32_t* tid = room_.threads()[p.first].tid;
    if (!text.empty()) text += "; ";
    text += std::to_string(p.count) + (p.count == 1 ? " thread stands at " : " threads stand at ") + name_of(p.op);
    if (p.op == Op::barrier || p.op == Op::barrier_red) text += " (" + std::to_string(p.barrier) + ")";
    if (p.line) text += ", PTX line " + std::to_string(p.line);
    text += p.count == 1 ? " (" : " (the first: ";
    text += "thread " + std::to_string(tid[0]) + ", " + std::to_string(tid[1]) + ", " + std::to_string(tid[2]) + ")";
  }
  uint32_t returned = count_ - live_;
  if (returned) text += "; " + std::to_string(returned) + " returned";
  return text;
}

}  // namespace cudacpu
