"""The same kind of kernel in LLVM IR, compiled in this process: no C compiler needed."""

import numpy as np

import hcq

SOURCE = """
declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
declare i32 @hcq.local_size(i32)

define void @square(ptr %out, ptr %in) {
  %group = call i32 @hcq.group_id(i32 0)
  %size = call i32 @hcq.local_size(i32 0)
  %item = call i32 @hcq.local_id(i32 0)
  %first = mul i32 %group, %size
  %i = add i32 %first, %item
  %from = getelementptr float, ptr %in, i32 %i
  %x = load float, ptr %from
  %y = fmul float %x, %x
  %to = getelementptr float, ptr %out, i32 %i
  store float %y, ptr %to
  ret void
}
"""

dev = hcq.Device["LLVM"]
values = np.linspace(0, 1, 4096, dtype=np.float32)
source, result = hcq.array(values, "LLVM"), hcq.empty(4096, hcq.dtypes.float32, "LLVM")
dev.program("square", SOURCE)(result, source, global_size=(16, 1, 1), local_size=(256, 1, 1))
assert np.array_equal(result.numpy(), values * values)
print(f"{dev.dname}: {result.numpy()[-1]:g}")
