"""Streams: work of one is ordered, work of different ones runs side by side, and one can wait for another."""

import numpy as np

import hcq

SOURCE = "void add(int *x, int by, int n) { for (int i = 0; i < n; i++) x[i] += by; }"
N = 1 << 18

dev = hcq.Device["CLANG"]
add = dev.program("add", SOURCE)
first, second = (hcq.array(np.zeros(N, dtype=np.int32), "CLANG") for _ in range(2))
total = hcq.array(np.zeros(N, dtype=np.int32), "CLANG")
ones, tens = dev.stream(), dev.stream()

for _ in range(3):
    add(first, vals=(1, N), stream=ones)  # these three one after the other,
    add(second, vals=(10, N), stream=tens)  # beside these three
ones.wait(tens)  # what is given to `ones` from here on comes after them
hcq.copy(total, second, stream=ones)
add(total, vals=(7, N), stream=ones)
ones.synchronize()

assert (np.asarray(first) == 3).all() and (np.asarray(total) == 37).all()
print(f"{np.asarray(first)[0]}, {np.asarray(total)[0]}")
