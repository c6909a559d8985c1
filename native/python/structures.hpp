// Structures by value, from whatever has their bytes: the buffer protocol's, contiguous, or a NumPy scalar's.
#pragma once
#include <nanobind/nanobind.h>

#include "core/program.hpp"
#include "python/common.hpp"

namespace hcq {

// As put_value, of a parameter that is a structure.
bool put_structure(const Program& program, size_t index, const Param& p, PyObject* v, uint8_t* out);
// A tuple of values, checked before, as whoever uses them later may keep it: structures, which their owners may change,
// as bytes. Null with an exception.
Ref kept_values(const Program& program, size_t buffers, Ref vals);

void init_structures(nanobind::module_& m);

}  // namespace hcq
