// Runs work-groups of a loaded function on the calling thread. How code got into memory is the loader's business.
#include "cpu/code.hpp"

namespace hcq {

void run_groups(const Program& program, const uint8_t* kernargs, const uint32_t[3], const uint32_t[3], uint64_t,
                uint64_t) {
  if (program.kind == EntryKind::nothing) return;
  if (program.kind == EntryKind::packed) return reinterpret_cast<void (*)(const uint8_t*)>(program.entry)(kernargs);
  static_cast<const Code*>(program.code)->plan.call_once(program.entry, kernargs);
}

}  // namespace hcq
