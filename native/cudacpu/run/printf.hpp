// printf of kernels. What does not live here: who writes it out, and when (grid.cpp).
#pragma once
#include <string>

namespace cudacpu {

// Formats as CUDA's vprintf does and appends to `out`; returns how many arguments it took, -1 without a format. Reads
// the kernel's memory, so it may be left by longjmp; `out` is whole then and may hold a part.
int format(std::string& out, const char* text, const void* arguments);

// Where a host thread collects what its blocks print.
std::string& printed();

}  // namespace cudacpu
