// Blocks over host threads. Each host thread takes blocks in order; a block whose threads all wait for what others
// write is laid aside while the next ones run, as a GPU has many blocks at once.
#include "run/grid.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "run/block.hpp"
#include "run/crew.hpp"
#include "run/fault.hpp"
#include "run/printf.hpp"
#include "run/whose.hpp"

namespace cudacpu {

namespace {

constexpr auto kAlone = std::chrono::microseconds(20);  // waking a helper takes some 5
constexpr auto kShort = std::chrono::microseconds(10), kLong = std::chrono::microseconds(100);  // of blocks in a row
constexpr size_t kLaidAside = 64;  // blocks a host thread, in launches that are not cooperative

using Clock = std::chrono::steady_clock;

// What a host thread keeps from grid to grid.
struct Keep {
  std::vector<std::unique_ptr<BlockRun>> rooms;
  std::vector<BlockRun*> spare;  // those of the grid that runs which have no block
};

Keep& keep() {
  static thread_local Keep t_keep;
  return t_keep;
}

class GridRun final : public Shared {
 public:
  explicit GridRun(const Launch& launch) : launch_(launch) {
    static std::atomic<uint64_t> next_id{1};
    grid_.params = launch.params;
    std::copy(launch.block, launch.block + 3, grid_.ntid);
    std::copy(launch.grid, launch.grid + 3, grid_.nctaid);
    grid_.dynamic_shared = launch.dynamic_shared;
    grid_.shared_bytes = launch.code.shared + launch.dynamic_shared;
    grid_.local_bytes = launch.code.local;
    grid_.id = next_id.fetch_add(1, std::memory_order_relaxed);
    grid_.owner = this;
    if (launch.cooperative) grid_.workspace = reinterpret_cast<uint64_t>(workspace_);
    blocks_ = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    most_helpers = static_cast<uint32_t>(std::min<uint64_t>(cores() - 1, blocks_ - 1));
  }

  Ending run() {
    work(true);
    if (called_) dismiss_crew(*this);
    if (!printed_.empty()) {
      std::fwrite(printed_.data(), 1, printed_.size(), stdout);
      std::fflush(stdout);
    }
    if (!grid_.failed) return {};
    return {failure_.result, text()};
  }

  void help() override { work(false); }
  bool has_more() const override { return next_.load(std::memory_order_relaxed) < blocks_ && !failed(); }

 private:
  bool failed() const { return __atomic_load_n(&grid_.failed, __ATOMIC_RELAXED) != 0; }

  void work(bool caller) {
    catch_faults();
    Keep& kept = keep();
    Running running;
    running.grid = &grid_;
    running.failure = &failure_;
    std::vector<BlockRun*> resident;
    if (launch_.code.kind == Kind::threads) resident.reserve(launch_.cooperative ? blocks_ : kLaidAside);
    // Nothing that has to be undone lies between here and where a kernel is left: what was begun is only forgotten.
    if (sigsetjmp(running.escape, 0) == 0) {
      if (launch_.code.kind == Kind::threads) {
        take_blocks(kept, running, resident, caller);
      } else {
        take_rows(kept, running, caller);
      }
    }
    set_running(nullptr);
    if (kept.rooms.size() > kLaidAside) kept.rooms.resize(kLaidAside);
    std::string& mine = printed();
    if (mine.empty()) return;
    std::lock_guard<std::mutex> hold(lock_);
    printed_ += mine;
    mine.clear();
  }

  // Blocks that each run to their end in a call: as many in a row as take some time together, so that what stands
  // between them costs little.
  void take_rows(Keep& kept, Running& running, bool caller) {
    size_t used = 0;
    BlockRun* block = room(kept, used);
    if (!block) return no_memory();
    block->begin(0, 0, 0, workers_.fetch_add(1, std::memory_order_relaxed));
    running.block = block;
    set_running(&running);
    bool alone = caller && most_helpers;
    const Clock::time_point began = blocks_ > 1 ? Clock::now() : Clock::time_point{};
    Clock::time_point before = began;
    for (uint64_t chunk = 1; !failed();) {
      const uint64_t first = next_.fetch_add(chunk, std::memory_order_relaxed);  // relaxed: blocks are unordered
      if (first >= blocks_) return;
      const uint64_t end = std::min(first + chunk, blocks_);
      block->run_row(first, end);
      if (end == blocks_) return;
      const Clock::time_point now = Clock::now();
      if (now - before < kShort) {
        // No more than leaves all something to do to the end.
        chunk = std::max<uint64_t>(1, std::min(2 * chunk, (blocks_ - end) / (8 * (most_helpers + 1))));
      } else if (now - before > kLong && chunk > 1) {
        chunk /= 2;
      }
      before = now;
      if (alone && now - began > kAlone) {
        alone = false;
        called_ = true;
        call_crew(*this);
      }
    }
  }

  void take_blocks(Keep& kept, Running& running, std::vector<BlockRun*>& resident, bool caller) {
    const size_t most = launch_.cooperative ? static_cast<size_t>(blocks_) : kLaidAside;
    size_t used = 0;  // rooms prepared for this grid
    const uint32_t smid = workers_.fetch_add(1, std::memory_order_relaxed);
    std::vector<BlockRun*>& spare = kept.spare;
    spare.clear();
    Clock::time_point began = caller && most_helpers ? Clock::now() : Clock::time_point{};
    bool alone = caller && most_helpers;
    for (;;) {
      if (failed()) return;
      if (alone && Clock::now() - began > kAlone) {
        alone = false;
        if (has_more()) {
          called_ = true;
          call_crew(*this);
        }
      }
      // relaxed: blocks are unordered
      const uint64_t number = resident.size() < most && next_.load(std::memory_order_relaxed) < blocks_
                                  ? next_.fetch_add(1, std::memory_order_relaxed)
                                  : blocks_;
      if (number < blocks_) {
        BlockRun* block = spare.empty() ? room(kept, used) : spare.back();
        if (!block) return no_memory();
        if (!spare.empty()) spare.pop_back();
        const uint32_t* n = launch_.grid;
        block->begin(static_cast<uint32_t>(number % n[0]), static_cast<uint32_t>(number / n[0] % n[1]),
                     static_cast<uint32_t>(number / n[0] / n[1]), smid);
        if (advance(*block, running)) {
          spare.push_back(block);
        } else {
          resident.push_back(block);
        }
        continue;
      }
      if (resident.empty()) return;
      bool any = false;
      for (size_t i = 0; i < resident.size() && !failed();) {
        if (advance(*resident[i], running)) {
          spare.push_back(resident[i]);
          resident.erase(resident.begin() + static_cast<ptrdiff_t>(i));
          any = true;
        } else {
          ++i;
        }
      }
      if (!any) sched_yield();  // they wait for blocks of other host threads, or for the host
    }
  }

  // True: the block has ended.
  bool advance(BlockRun& block, Running& running) {
    running.block = &block;
    set_running(&running);
    State state = block.step();
    set_running(nullptr);
    if (state == State::stuck && first_failure(&grid_)) {
      failure_.result = CUDA_ERROR_LAUNCH_TIMEOUT;
      std::copy(block.block().ctaid, block.block().ctaid + 3, failure_.ctaid);
      standing_ = block.standing();
    }
    return state != State::waiting;
  }

  BlockRun* room(Keep& kept, size_t& used) {
    if (used == kept.rooms.size()) kept.rooms.push_back(std::make_unique<BlockRun>());
    BlockRun* block = kept.rooms[used].get();
    if (!block->prepare(&grid_, launch_.code, this)) return nullptr;
    ++used;
    return block;
  }

  void no_memory() {
    if (!first_failure(&grid_)) return;
    failure_.result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    standing_ = "no memory for a block's shared and local memory and its threads";
  }

  std::string text() const;
  std::string suspects(uint32_t& line) const;

  const Launch launch_;
  Grid grid_{};
  uint64_t blocks_ = 0;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> workers_{0};
  bool called_ = false;
  Failure failure_;
  std::string standing_;
  uint32_t workspace_[2] = {sizeof workspace_, 0};  // size; the word of the grid's barrier
  std::mutex lock_;                                 // of `printed_`
  std::string printed_;
};

std::string triple(const uint32_t* n) {
  return "(" + std::to_string(n[0]) + ", " + std::to_string(n[1]) + ", " + std::to_string(n[2]) + ")";
}

std::string what(const Failure& f) {
  switch (f.result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "an illegal address";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return "out of resources";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return "the block is stuck";
    case CUDA_ERROR_ASSERT:
      return "an assertion failed";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return "an illegal instruction or a trap";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "a misaligned address";
    case CUDA_ERROR_LAUNCH_FAILED:
      return f.signal ? "an arithmetic fault" : "a trap";
    default:
      return "error " + std::to_string(f.result);
  }
}

// Whose the access of code that runs many threads at once was: a part of a message, empty where that isn't known; and
// its line.
std::string GridRun::suspects(uint32_t& line) const {
  const Failure& f = failure_;
  Block block{&grid_, f.shared, {f.ctaid[0], f.ctaid[1], f.ctaid[2]}, 0, nullptr, nullptr};
  const Whose found =
      whose(*launch_.accesses, block, {line, f.has_address, f.address, f.result == CUDA_ERROR_MISALIGNED_ADDRESS});
  if (!found.count) return "";
  line = found.line;
  const uint32_t* n = grid_.ntid;
  const uint32_t first[3] = {found.first % n[0], found.first / n[0] % n[1], found.first / n[0] / n[1]};
  std::string said = ", thread " + triple(first);
  if (found.count > 1) said += " or one of " + std::to_string(found.count - 1) + " others";
  return said;
}

std::string GridRun::text() const {
  const Failure& f = failure_;
  std::string said = "kernel '" + std::string(launch_.name) + "', block " + triple(f.ctaid);
  uint32_t line = f.instruction ? launch_.lines->at(f.instruction) : f.line;
  if (!line) line = f.line;
  std::string thread = f.has_thread ? ", thread " + triple(f.tid) : "";
  if (f.signal && !f.has_thread && line) thread = suspects(line);
  said += thread;
  if (line) said += ", PTX line " + std::to_string(line);
  std::string source = line ? launch_.lines->of(line) : "";
  if (!source.empty()) said += " (" + source + ")";
  said += ": " + (f.text[0] ? f.text : what(f));
  if (f.has_address && !f.text[0]) {
    char hex[32];
    std::snprintf(hex, sizeof hex, " 0x%llx", static_cast<unsigned long long>(f.address));
    said += hex;
  }
  if (!standing_.empty()) said += ": " + standing_;
  // Found by the processor, in code that runs many threads at once.
  if (f.signal && thread.empty()) said += "; with HCQ_CUDACPU_CHECK=1 you are told which thread";
  return said;
}

}  // namespace

std::string Lines::of(uint32_t ptx) const {
  auto after =
      std::upper_bound(from.begin(), from.end(), ptx, [](uint32_t line, const From& f) { return line < f.ptx; });
  if (after == from.begin()) return "";
  const From& found = *std::prev(after);
  return found.line && found.file < files.size() ? files[found.file] + ":" + std::to_string(found.line) : "";
}

uint32_t Lines::at(uint64_t instruction) const {
  std::lock_guard<std::mutex> hold(lock_);
  for (const Code& each : code_) {
    if (each.made.empty() || instruction < each.begin || instruction >= each.begin + each.made.back().byte) continue;
    auto after = std::upper_bound(each.made.begin(), each.made.end(), instruction - each.begin,
                                  [](uint64_t byte, const Made& m) { return byte < m.byte; });
    if (after != each.made.begin()) return std::prev(after)->ptx;
  }
  return 0;
}

void Lines::add(Code more) {
  std::lock_guard<std::mutex> hold(lock_);
  code_.push_back(std::move(more));
}

Ending run_grid(const Launch& launch) {
  if (!launch.grid[0] || !launch.grid[1] || !launch.grid[2]) return {};
  GridRun run(launch);
  return run.run();
}

}  // namespace cudacpu
