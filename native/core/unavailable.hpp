// Why a library of others, its driver or a device of it can't be used: what hcq.errors.DeviceUnavailable says.
#pragma once
#include <string>

namespace hcq {

struct Unavailable {
  std::string reason, hint;  // `hint` is what to do
};

}  // namespace hcq
