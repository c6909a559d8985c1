// Lines of the user's program by number, which is what packets and records carry (packet.hpp). Finding the line that
// calls is python/user_line.cpp's.
#pragma once
#include <string>

#include "core/base.hpp"

namespace hcq {

struct UserLine {
  std::string file;
  uint32_t line = 0;
  std::string function;
};

uint64_t line_number(const UserLine& line);        // the same for the same line; 0 where there are too many
bool line_lookup(uint64_t number, UserLine* out);  // false: no such number
std::string line_words(uint64_t number);           // "train.py:15"; empty for 0
const char* line_text(uint64_t number);            // the same, null for none; for signal handlers: takes no lock

void lines_after_fork();
}  // namespace hcq
