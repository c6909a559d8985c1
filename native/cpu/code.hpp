// What a Program's `code` points to: shared by loading (load.cpp) and running (run.cpp).
#pragma once
#include <memory>

#include "cpu/arguments.hpp"
#include "cpu/loader.hpp"

namespace hcq {

struct Code {
  std::unique_ptr<Image> image;
  size_t entry = 0;  // offset in an instance's code
  ArgumentPlan plan;
};

}  // namespace hcq
