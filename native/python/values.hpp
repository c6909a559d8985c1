// One value of a launch, from a Python number or a NumPy scalar, checked against its parameter. For arguments.cpp.
#pragma once
#include <string>

#include "core/program.hpp"
#include "python/common.hpp"

namespace hcq {

// Writes the value of parameter `index` to `out`, p.size bytes. False: LaunchError is raised.
bool put_value(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out);
// A value of a program without recorded types: 8 bytes.
bool put_untyped(const Program& program, size_t index, PyObject* value, uint8_t* slot);
// How a refusal calls a value.
std::string value_words(const Program& program, size_t index);

}  // namespace hcq
