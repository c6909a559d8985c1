// What loaded code may call that isn't in its object: the functions of hcq.h, conversions of half-width floats, and
// whatever the process and its C libraries have.
#pragma once
#include <string>

namespace hcq {

void* external_address(const std::string& name);  // nullptr when nothing has it

}  // namespace hcq
