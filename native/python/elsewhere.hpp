// Making programs that an interface carries out (EntryKind::elsewhere), for the drivers' bindings: where their
// arguments lie in the kernargs, and the capsule that a Program object is made of.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/program.hpp"

namespace hcq {

// An argument of a kernel, by its place in the source.
struct Laid {
  uint32_t index;         // in the source
  uint32_t offset, size;  // in the kernargs
  bool pointer;
};

// A program with these arguments, by the names that drivers in Python have for their types: "ptr", "const" for a
// pointer that is only read through, "image r", "image w" and "image rw", which are pointers too, and values', "bytesN"
// for a structure of N bytes. `names` are for messages, as many or none. Its kernargs are the pointers, then the
// values, whatever their order in the source: so come the arguments in `laid`. `wanted` is the only size of groups that
// it takes, 0 for any. Throws invalid_argument for a type that there isn't, and for more than a launch carries.
std::unique_ptr<Program> program_elsewhere(const std::string& name, const std::vector<std::string>& types,
                                           const std::vector<std::string>& names, uint64_t most_items,
                                           std::tuple<uint32_t, uint32_t, uint32_t> wanted, std::vector<Laid>* laid);

// Makes it one whose parameters are known by their sizes, in the source's order: "ptr" nowhere, "bits64" for what may
// be one. Throws invalid_argument for more than a launch carries.
void in_order(Program& program, const std::vector<Laid>& laid);

// What Python is given of it: releases the program, unless a Program object takes that.
nanobind::object program_capsule(std::unique_ptr<Program> program);

}  // namespace hcq
