"""A kernel in C on the CPU: buffers from arrays, a launch over work-groups, the result back as an array."""

import numpy as np

import hcq

SOURCE = """
#include <hcq.h>
HCQ_KERNEL void saxpy(float *y, const float *x, float a) {
  int i = hcq_group_id(0) * hcq_local_size(0) + hcq_local_id(0);
  y[i] += a * x[i];
}
"""

dev = hcq.Device["CLANG"]
x = hcq.array(np.arange(1024, dtype=np.float32), "CLANG")
y = hcq.array(np.ones(1024, dtype=np.float32), "CLANG")

saxpy = dev.program("saxpy", SOURCE)
saxpy(y, x, vals=(2.0,), global_size=(4, 1, 1), local_size=(256, 1, 1))

assert np.array_equal(y.numpy(), 1 + 2 * np.arange(1024, dtype=np.float32))
print(f"{dev.dname}: 1024 values, the last is {y.numpy()[-1]:g}")
