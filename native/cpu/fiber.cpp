// The fiber switch for x86-64 and aarch64. Saved are the registers that a called function must preserve (System V
// x86-64 psABI 3.2.1, AAPCS64 6.1); the floating-point control words are left alone, since kernels don't change them.
//
// Barriers need no counting: the fibers run in turn, each up to its next barrier, so when a fiber's turn comes again
// all others have reached one or returned. A switch resumes by a jump: a `ret` to another stack's caller is always
// mispredicted.
#include "cpu/fiber.hpp"

// What the assembler knows of Context and Fiber.
static_assert(offsetof(hcq::Context, local_id) == 48, "");
static_assert(offsetof(hcq::Context, current) == 64, "");
static_assert(offsetof(hcq::Context, previous) == 72, "");
static_assert(offsetof(hcq::Context, outside) == 80, "");
static_assert(offsetof(hcq::Context, entry) == 88, "");
static_assert(offsetof(hcq::Context, arguments) == 96, "");
static_assert(offsetof(hcq::Context, caller) == 104, "");
static_assert(offsetof(hcq::Fiber, stack) == 0, "");
static_assert(offsetof(hcq::Fiber, next) == 8, "");
static_assert(offsetof(hcq::Fiber, local_id) == 16, "");
static_assert(hcq::kContextArea == 0x8000000, "");

#define HCQ_FUNCTION(name) ".globl " name "\n.hidden " name "\n.type " name ", %function\n.p2align 4\n" name ":\n"

#if defined(__x86_64__)

// Registers: rax the context, rcx the fiber that stops, rdx the one that goes on.
asm(R"(
.text
)" HCQ_FUNCTION("hcq_call_on_stack") R"(
    pushq %rbp
    movq %rsp, %rbp
    movq %rdi, %rsp
    movq %rdx, %rdi
    call *%rsi
    leave
    ret

)" HCQ_FUNCTION("hcq_run_fibers") R"(
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rdi, %rax
    movq %rsp, 80(%rax)
    movq 64(%rax), %rdx
    jmp .Lhcq_resume

)" HCQ_FUNCTION("hcq_barrier") R"(
    movq %rsp, %rax
    andq $-0x8000000, %rax
    movq 64(%rax), %rcx
    movq 8(%rcx), %rdx
    cmpq %rdx, %rcx
    je .Lhcq_alone
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rcx)
    movq %rcx, 72(%rax)
.Lhcq_resume:
    movq %rdx, 64(%rax)
    movups 16(%rdx), %xmm0
    movups %xmm0, 48(%rax)
    movq (%rdx), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.Lhcq_alone:
    ret

)" HCQ_FUNCTION("hcq_fiber_begin") R"(
    movq 88(%rbx), %rdi
    movq 96(%rbx), %rsi
    call *104(%rbx)
    movq %rbx, %rax
    movq 64(%rax), %rcx
    movq 8(%rcx), %rdx
    cmpq %rdx, %rcx
    je .Lhcq_all_done
    movq 72(%rax), %rcx
    movq %rdx, 8(%rcx)
    jmp .Lhcq_resume
.Lhcq_all_done:
    movq 80(%rax), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace {
// What hcq_barrier pushes, from the lowest address.
struct Frame {
  uint64_t r15, r14, r13, r12;
  void* rbx;  // the context, for hcq_fiber_begin
  uint64_t rbp;
  void (*resume)();
};
void set_frame(Frame* frame, hcq::Context* context, void (*begin)()) {
  frame->rbx = context;
  frame->rbp = 0;  // ends the chain of frames
  frame->resume = begin;
}
}  // namespace

#elif defined(__aarch64__)

// Registers: x9 the context, x10 the fiber that stops, x12 the one that goes on.
#define HCQ_SAVE               \
  "sub sp, sp, #160\n"         \
  "stp x19, x20, [sp]\n"       \
  "stp x21, x22, [sp, #16]\n"  \
  "stp x23, x24, [sp, #32]\n"  \
  "stp x25, x26, [sp, #48]\n"  \
  "stp x27, x28, [sp, #64]\n"  \
  "stp x29, x30, [sp, #80]\n"  \
  "stp d8, d9, [sp, #96]\n"    \
  "stp d10, d11, [sp, #112]\n" \
  "stp d12, d13, [sp, #128]\n" \
  "stp d14, d15, [sp, #144]\n"
#define HCQ_RESTORE            \
  "ldp x19, x20, [sp]\n"       \
  "ldp x21, x22, [sp, #16]\n"  \
  "ldp x23, x24, [sp, #32]\n"  \
  "ldp x25, x26, [sp, #48]\n"  \
  "ldp x27, x28, [sp, #64]\n"  \
  "ldp x29, x30, [sp, #80]\n"  \
  "ldp d8, d9, [sp, #96]\n"    \
  "ldp d10, d11, [sp, #112]\n" \
  "ldp d12, d13, [sp, #128]\n" \
  "ldp d14, d15, [sp, #144]\n" \
  "add sp, sp, #160\n"

asm(".text\n" HCQ_FUNCTION("hcq_call_on_stack")
        R"(
    stp x29, x30, [sp, #-16]!
    mov x29, sp
    mov sp, x0
    mov x0, x2
    blr x1
    mov sp, x29
    ldp x29, x30, [sp], #16
    ret
)" HCQ_FUNCTION("hcq_run_fibers") HCQ_SAVE R"(
    mov x9, x0
    mov x11, sp
    str x11, [x9, #80]
    ldr x12, [x9, #64]
    b .Lhcq_resume
)" HCQ_FUNCTION("hcq_barrier") R"(
    mov x9, sp
    and x9, x9, #0xfffffffff8000000
    ldr x10, [x9, #64]
    ldr x12, [x10, #8]
    cmp x10, x12
    b.eq .Lhcq_alone
)" HCQ_SAVE R"(
    mov x11, sp
    str x11, [x10]
    str x10, [x9, #72]
.Lhcq_resume:
    str x12, [x9, #64]
    ldr q0, [x12, #16]
    str q0, [x9, #48]
    ldr x11, [x12]
    mov sp, x11
)" HCQ_RESTORE R"(
    br x30
.Lhcq_alone:
    ret
)" HCQ_FUNCTION("hcq_fiber_begin") R"(
    ldr x0, [x19, #88]
    ldr x1, [x19, #96]
    ldr x2, [x19, #104]
    blr x2
    mov x9, x19
    ldr x10, [x9, #64]
    ldr x12, [x10, #8]
    cmp x10, x12
    b.eq .Lhcq_all_done
    ldr x10, [x9, #72]
    str x12, [x10, #8]
    b .Lhcq_resume
.Lhcq_all_done:
    ldr x11, [x9, #80]
    mov sp, x11
)" HCQ_RESTORE R"(
    ret
)");

namespace {
// What hcq_barrier saves, from the lowest address.
struct Frame {
  void* x19;  // the context, for hcq_fiber_begin
  uint64_t x20_to_x28[9];
  uint64_t x29;
  void (*resume)();  // x30
  uint64_t d8_to_d15[8];
};
void set_frame(Frame* frame, hcq::Context* context, void (*begin)()) {
  frame->x19 = context;
  frame->x29 = 0;  // ends the chain of frames
  frame->resume = begin;
}
}  // namespace

#else
#error "fibers are written for x86-64 and aarch64"
#endif

extern "C" void hcq_fiber_begin();  // where a fresh fiber starts; only jumped to

namespace hcq {

void fibers_prepare(Context* context, uint32_t items) {
  for (uint32_t i = 0; i < items; ++i) {
    auto* frame = reinterpret_cast<Frame*>(context->fiber_stack(i)) - 1;
    set_frame(frame, context, hcq_fiber_begin);
    context->fibers[i].stack = frame;
    context->fibers[i].next = &context->fibers[i + 1 < items ? i + 1 : 0];
  }
  context->current = &context->fibers[0];
  context->previous = &context->fibers[items - 1];
}

}  // namespace hcq
