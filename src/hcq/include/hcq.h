/* What a grid kernel in C may use on the CPU devices of hcq.

     #include <hcq.h>

     HCQ_KERNEL void sum(float *out, const float *in) {
       HCQ_LOCAL float tile[256];
       unsigned i = hcq_local_id(0);
       tile[i] = in[hcq_group_id(0) * 256 + i];
       for (unsigned half = 128; half > 0; half /= 2) {
         hcq_barrier();
         if (i < half) tile[i] += tile[i + half];
       }
       if (i == 0) out[hcq_group_id(0)] = tile[0];
     }

   A kernel returns void and takes pointers, then values. It is called once a work-item; the items of a group are as if
   together, groups run side by side on all cores. Dimensions are 0, 1, 2; for others ids are 0 and sizes 1.

   Stacks: a kernel of a source with hcq_barrier() has 48 KiB an item, one without 3 MiB. Plain functions (without
   HCQ_KERNEL) are called once a launch and can use nothing of this file. */
#ifndef HCQ_H
#define HCQ_H

/* Marks a function as a kernel. */
#define HCQ_KERNEL __attribute__((used, section(".text.hcq_kernel")))

/* Local memory: `HCQ_LOCAL float tile[256];` inside a kernel is one array a work-group, uninitialised. */
#define HCQ_LOCAL static __attribute__((section(".bss.hcq_local")))

#define HCQ_INLINE_ static inline __attribute__((always_inline, unused))

/* The work-group that runs is found from the stack pointer, since its items run on stacks of its own. The relocation
   without effect tells the loader's tools which functions rely on that. */
HCQ_INLINE_ const unsigned *hcq_context_(void) {
  unsigned long stack;
#if defined(__x86_64__)
  __asm__(".reloc ., BFD_RELOC_NONE, hcq_group\n\tmovq %%rsp, %0" : "=r"(stack));
#elif defined(__aarch64__)
  __asm__(".reloc ., BFD_RELOC_NONE, hcq_group\n\tmov %0, sp" : "=r"(stack));
#else
#error "hcq.h knows x86-64 and aarch64"
#endif
  return (const unsigned *)(stack & ~((1ul << 27) - 1));
}

/* Which work-group this is, in dimension d. */
HCQ_INLINE_ unsigned hcq_group_id(unsigned d) { return d < 3 ? hcq_context_()[d] : 0; }
/* How many work-groups the launch has, in dimension d. */
HCQ_INLINE_ unsigned hcq_num_groups(unsigned d) { return d < 3 ? hcq_context_()[3 + d] : 1; }
/* How many work-items a group has, in dimension d. */
HCQ_INLINE_ unsigned hcq_local_size(unsigned d) { return d < 3 ? hcq_context_()[6 + d] : 1; }
/* Which work-item of its group this is, in dimension d. */
HCQ_INLINE_ unsigned hcq_local_id(unsigned d) { return d < 3 ? hcq_context_()[12 + d] : 0; }

/* For generated code: this call has done the work of the whole group, and the items that follow are not called. Only in
   sources without hcq_barrier(). */
HCQ_INLINE_ void hcq_group_done_(void) { ((unsigned *)hcq_context_())[15] = 1; }

/* Waits until every item of the group has come here, or has returned. What items wrote before is seen after it. */
void hcq_barrier(void);

#endif
