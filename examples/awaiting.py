"""Awaiting signals and devices in asyncio: the event loop goes on, and no thread is spent on a wait."""

import asyncio

import numpy as np

import hcq

SOURCE = "void fill(int *x, int value, int n) { for (int i = 0; i < n; i++) x[i] = value; }"
N = 1 << 20


async def main():
    dev = hcq.Device["CLANG"]
    fill = dev.program("fill", SOURCE)
    buffers = [hcq.empty(N, hcq.dtypes.int32, "CLANG") for _ in range(4)]
    finished = dev.signal_t()

    async def report():
        for i, buffer in enumerate(buffers):
            await finished.reached(i + 1)
            print(f"{i}: {np.asarray(buffer)[-1]}")

    async def submit():
        for i, buffer in enumerate(buffers):
            arguments = fill.fill_kernargs([buffer], (i * i, N))
            dev.hw_compute_queue_t().exec(fill, arguments).signal(finished, i + 1).submit(dev)
            await asyncio.sleep(0)

    await asyncio.gather(report(), submit())
    await dev.idle()


asyncio.run(main())
