// Switching of stacks: running a function on another one, and the fibers of a work-group.
#pragma once
#include "cpu/context.hpp"

extern "C" {

// Calls function(argument) on the stack that ends at `stack` (aligned to 16), and comes back.
void hcq_call_on_stack(void* stack, void (*function)(void*), void* argument);
// Runs the fibers of context->current's ring until all have returned.
void hcq_run_fibers(hcq::Context*);
// What kernels call: goes on with the next fiber of the ring, and returns when it is this one's turn again.
void hcq_barrier();
}

namespace hcq {

// Makes a ring of `items` fresh fibers, in order, ready for hcq_run_fibers.
void fibers_prepare(Context*, uint32_t items);

}  // namespace hcq
