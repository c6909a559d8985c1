"""Two devices on one processor, each with queues of its own; one waits for the other by a signal."""

import numpy as np

import hcq

SOURCE = "void add(int *x, int by, int n) { for (int i = 0; i < n; i++) x[i] += by; }"
N = 1 << 16

first, second = hcq.Device["CLANG:1"], hcq.Device["CLANG:2"]
shared = hcq.array(np.zeros(N, dtype=np.int32), "CLANG:1")
handed_over, done = first.signal_t(), second.signal_t()


def submit(dev, by, after, then):
    """Queue `x += by` on dev; waits for the signal `after` where there is one, then sets `then`."""
    add = dev.program("add", SOURCE)
    queue = dev.hw_compute_queue_t()
    if after is not None:
        queue.wait(after, 1)
    queue.exec(add, add.fill_kernargs([shared], (by, N))).signal(then, 1).submit(dev)


submit(second, 10, handed_over, done)  # stands at its wait
submit(first, 1, None, handed_over)
done.wait(1)
assert (np.asarray(shared) == 11).all()
print(f"{first.dname} then {second.dname}: {np.asarray(shared)[0]}")
