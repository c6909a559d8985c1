// What this processor is and can do, as far as code generation depends on it.
#pragma once
#include <string>

namespace hcq {

std::string cpu_features();  // stable for a processor model and its features as this process may use them

}  // namespace hcq
