// What compiled PTX and the executor say to each other. src/hcq/cudacpu/abi.py has the same offsets; the assertions
// hold both to them. What does not live here: the API's own structures (api.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cudacpu {

// One launch. Read only while it runs, but for `failed`.
struct Grid {
  const uint8_t* params;    // the kernel's parameters, laid out as PTX says
  uint32_t ntid[3];         // threads of a block
  uint32_t nctaid[3];       // blocks
  uint32_t dynamic_shared;  // bytes, after the static ones
  uint32_t shared_bytes;    // of a block, in all
  uint64_t id;              // %gridid
  uint32_t failed;          // not 0: a thread failed; others may stop
  uint32_t local_bytes;     // of a thread
  void* owner;              // the executor's
  uint64_t workspace;       // %envreg1 (high half) and %envreg2 (low half): words of a cooperative grid, else 0
};

// One block that runs. On one host thread.
struct Block {
  const Grid* grid;
  uint8_t* shared;
  uint32_t ctaid[3];
  uint32_t smid;
  uint8_t* local;  // local memory of thread 0; that of thread n follows n * local_bytes later
  void* owner;     // the executor's
};

// Why a thread suspended. The operand fields are told of at each.
enum class Op : uint32_t {
  none = 0,
  barrier,      // a[0]: barrier's number, a[1]: threads (0: all)
  barrier_red,  // as barrier; a[2]: kind (0 popc, 1 and, 2 or), a[3]: predicate; r[0]: the result
  arrive,       // as barrier; the thread goes on at once
  warp_sync,    // mask
  shuffle,  // mask; a[0]: value, a[1]: lane operand, a[2]: c operand, a[3]: mode (0 up, 1 down, 2 bfly, 3 idx); r[0]:
            // value, r[1]: predicate
  vote,     // mask; a[0]: predicate, a[1]: mode (0 all, 1 any, 2 uni, 3 ballot); r[0]: the result
  match,    // mask; a[0]: value, a[1]: 0 any, 1 all; r[0]: mask, r[1]: predicate
  redux,    // mask; a[0]: value, a[1]: operation (0 add, 1 min.s, 2 max.s, 3 min.u, 4 max.u, 5 and, 6 or, 7 xor); r[0]
  active_mask,  // r[0]: those of the warp that stand here too
  exchange,     // mask; a[0]: address of `a[1]` bytes that the thread gives, a[2]: address of 32 * a[1] bytes that it
                // gets: for mma and ldmatrix; a[2] 0: r[0] is the address of a buffer that the warp shares, there until
                // its next exchange
  exited,       // the thread returned; it is not resumed again
  yield,        // the thread waits for what others do: nanosleep, and loops that look at memory until it changes
};

// One CUDA thread. The executor's until it starts; then the compiled code's, but at suspensions.
struct Thread {
  Block* block;
  uint8_t* local;
  uint32_t tid[3];
  uint32_t linear;  // tid.x + tid.y * ntid.x + tid.z * ntid.x * ntid.y; the lane is linear % 32
  Op op;
  uint32_t mask;
  uint64_t a[4];
  uint64_t r[2];
  uint32_t line;  // PTX line, where known
  uint32_t pad;
  void* frame;  // the coroutine's; null: it ended
};

static_assert(sizeof(Grid) == 72 && offsetof(Grid, ntid) == 8 && offsetof(Grid, nctaid) == 20 &&
              offsetof(Grid, dynamic_shared) == 32 && offsetof(Grid, id) == 40 && offsetof(Grid, failed) == 48);
static_assert(sizeof(Block) == 48 && offsetof(Block, shared) == 8 && offsetof(Block, ctaid) == 16 &&
              offsetof(Block, local) == 32);
static_assert(sizeof(Thread) == 104 && offsetof(Thread, tid) == 16 && offsetof(Thread, op) == 32 &&
              offsetof(Thread, a) == 40 && offsetof(Thread, r) == 72 && offsetof(Thread, line) == 88);

// The entries of a kernel.
using LoopEntry = void (*)(const Block*);
using ThreadEntry = void* (*)(Thread*);  // the ramp; it returns the frame
// What the device LLVM makes of a kernel (docs/design/llvm-grid.md): its one argument is the block.
struct GroupContext {
  uint32_t group_id[3], num_groups[3], local_size[3];
  uint32_t reserved;
  uint8_t* scratch;  // aligned to 64
};
static_assert(sizeof(GroupContext) == 48 && offsetof(GroupContext, scratch) == 40);
using RegionsEntry = void (*)(const Block* const* arguments, const GroupContext*);

// What compiled code may call; the library exports them. fail and assert don't return: they leave the block by longjmp,
// so compiled code has nothing to undo.
extern "C" {
void* hcq_cuda_frame(Thread* thread,
                     uint64_t bytes);  // memory of a coroutine frame, aligned to 64; ends with the block
int32_t hcq_cuda_printf(const Block* block, const char* format,
                        const void* arguments);  // as CUDA's vprintf; how many arguments it took
[[noreturn]] void hcq_cuda_fail(const Block* block, uint32_t linear, uint32_t result, uint32_t line, uint64_t address);
[[noreturn]] void hcq_cuda_assert(const Block* block, uint32_t linear, const char* message, const char* file,
                                  uint32_t line, const char* function);
void* hcq_cuda_malloc(uint64_t bytes);
void hcq_cuda_free(void* at);
uint64_t hcq_cuda_clock();  // ns, %globaltimer
}

}  // namespace cudacpu
