// The line of the user's program that calls, as a number: for checks, profiles and captures alike. hcq.runtime.lines is
// what Python makes of it.
#pragma once
#include <cstdint>

#include "core/packet.hpp"
#include "core/record.hpp"
#include "python/watch.hpp"

namespace nanobind {
class module_;
}

namespace hcq {

// The innermost line outside of hcq and of the standard library; 0 where there is none, as in finalizers. With the GIL,
// and without any lock, since objects are made and dropped. Keeps no frame.
uint64_t user_line();

// The same as it stands in packets (packet.hpp), or 0 while nobody profiles or watches.
inline uint64_t line_bits() {
  return __builtin_expect(recording() != 0 || watching(), 0) ? user_line() << kLineShift : 0;
}

void init_user_line(nanobind::module_& m);
}  // namespace hcq
