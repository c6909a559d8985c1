"""A copy queue and a compute queue, ordered by signals alone, and submitted again with another input."""

import numpy as np

import hcq

SOURCE = "void double_all(int *out, const int *in, int n) { for (int i = 0; i < n; i++) out[i] = 2 * in[i]; }"
N = 100_000

dev = hcq.Device["CLANG"]
double_all = dev.program("double_all", SOURCE)
inputs = [hcq.array(np.arange(N, dtype=np.int32) + 1000 * i, "CLANG") for i in range(2)]
staged, result = hcq.empty(N, hcq.dtypes.int32, "CLANG"), hcq.empty(N, hcq.dtypes.int32, "CLANG")
copied, done = dev.signal_t(), dev.signal_t()

copy = dev.hw_copy_queue_t()
copy.copy(staged._buf.va_addr, inputs[0]._buf.va_addr, staged.nbytes)  # command 0
copy.signal(copied, 1)  # command 1

arguments = double_all.fill_kernargs([result, staged], (N,))
compute = dev.hw_compute_queue_t()
compute.wait(copied, 1)  # command 0
compute.exec(double_all, arguments)  # command 1
compute.signal(done, 1)  # command 2

copy.bind(dev)
compute.bind(dev)

for i, source in enumerate(inputs):
    # A bound queue is patched and submitted again; whatever was submitted before is not disturbed.
    copy.update_copy(0, src=source._buf.va_addr).update_signal(1, value=i + 1)
    compute.update_wait(0, value=i + 1).update_signal(2, value=i + 1)
    compute.submit(dev)  # in either order: the signal decides
    copy.submit(dev)
    done.wait(i + 1)
    assert np.array_equal(np.asarray(result), 2 * source.numpy())
    print(f"round {i}: {np.asarray(result)[:3]}")
