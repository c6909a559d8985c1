"""OpenCL on the CPU: pyopencl over PoCL, Debian's where it is installed, else the one from the wheel."""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from itertools import repeat
from time import perf_counter
from typing import Any

os.environ.setdefault("POCL_CACHE_DIR", os.path.join(os.environ.get("HCQ_BENCH_SCRATCH", "/tmp"), "pocl"))
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")

import kernels  # the environment above is read at import
import numpy as np
import pyopencl as cl
from serve import (
    VERSIONS,
    Answer,
    bench,
    busy_thread,
    expect,
    fresh,
    fresh_median,
    idle_share,
    mappings,
    sampled,
    serve,
    tenths,
)

warnings.filterwarnings("ignore")
PLATFORM = next(p for p in cl.get_platforms() if "Portable Computing" in p.name)
VERSIONS["pyopencl"] = cl.VERSION_TEXT
VERSIONS["PoCL"] = PLATFORM.version.split("PoCL")[1].split()[0]
OPEN = (
    "p = next(p for p in cl.get_platforms() if 'Portable Computing' in p.name)\n"
    "ctx = cl.Context(p.get_devices()); q = cl.CommandQueue(ctx)"
)
FLAGS = cl.mem_flags.READ_WRITE


@lru_cache
def opened() -> tuple[Any, Any]:
    context = cl.Context(PLATFORM.get_devices())
    return context, cl.CommandQueue(context)


@lru_cache
def buffers(count: int = 3, size: int = 4096) -> list[Any]:
    context, queue = opened()
    made = [cl.Buffer(context, FLAGS, size) for _ in range(count)]
    for k, b in enumerate(made):
        cl.enqueue_fill_buffer(queue, b, np.int32(k == 0), 0, size)
    queue.finish()
    return made


@lru_cache
def add() -> Any:
    return cl.Program(opened()[0], kernels.ADD_CL).build().add


class Counted:
    """Looks at c before and after: every launch adds one to it."""

    def __init__(self, launches: int) -> None:
        self.launches = launches

    def read(self) -> int:
        out = np.zeros(1024, np.int32)
        cl.enqueue_copy(opened()[1], out, buffers()[2])
        return int(out[0])

    def __enter__(self) -> None:
        self.before = self.read()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            expect("launches that ran", (self.read() - self.before) & 0xFFFFFFFF, self.launches & 0xFFFFFFFF)


@bench
def launch(n: int) -> Answer:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()
    one = (1,)
    with Counted(n):
        start = perf_counter()
        for _ in repeat(None, n):
            kernel(queue, one, one, a, b, c)
        called = perf_counter()
        queue.finish()
        end = perf_counter()
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def prepared(n: int) -> Answer:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()
    kernel.set_args(a, b, c)
    enqueue, one = cl.enqueue_nd_range_kernel, (1,)
    with Counted(n):
        start = perf_counter()
        for _ in repeat(None, n):
            enqueue(queue, kernel, one, one)
        called = perf_counter()
        queue.finish()
        end = perf_counter()
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def launch_call(n: int, prepared: bool = False) -> float:
    """The calls alone, 32 at a time; `prepared`: with the arguments set before."""
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()
    enqueue, one, took = cl.enqueue_nd_range_kernel, (1,), 0.0
    kernel.set_args(a, b, c)
    with Counted(n // 32 * 32):
        for _ in range(n // 32):
            start = perf_counter()
            if prepared:
                for _ in repeat(None, 32):
                    enqueue(queue, kernel, one, one)
            else:
                for _ in repeat(None, 32):
                    kernel(queue, one, one, a, b, c)
            took += perf_counter() - start
            queue.finish()
    return took / (n // 32 * 32)


@bench
def launch_wake(n: int, pause: float) -> float:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()

    def go() -> None:
        kernel(queue, (1,), (1,), a, b, c)
        queue.flush()

    return sampled(n, pause, go, queue.finish)


@bench
def launch_wait(n: int, busy: str = "") -> float:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()
    one = (1,)
    with Counted(n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            kernel(queue, one, one, a, b, c).wait()
        return (perf_counter() - start) / n


@bench
def launch_synchronize(n: int, busy: str = "") -> float:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()
    one = (1,)
    with Counted(n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            kernel(queue, one, one, a, b, c)
            queue.finish()
        return (perf_counter() - start) / n


@bench
def flat(n: int) -> Answer:
    queue, kernel, (a, b, c) = opened()[1], add(), buffers()

    def run(count: int) -> None:
        for _ in repeat(None, count):
            kernel(queue, (1,), (1,), a, b, c)

    answer = tenths(n, run)
    queue.finish()
    return answer


@bench
def signal_query(n: int) -> float:
    event = cl.UserEvent(opened()[0])
    what = cl.event_info.COMMAND_EXECUTION_STATUS
    start = perf_counter()
    for _ in repeat(None, n):
        event.get_info(what)
    took = (perf_counter() - start) / n
    event.set_status(cl.command_execution_status.COMPLETE)
    return took


@bench
def signal_wait(n: int) -> float:
    event = cl.UserEvent(opened()[0])
    event.set_status(cl.command_execution_status.COMPLETE)
    start = perf_counter()
    for _ in repeat(None, n):
        event.wait()
    return (perf_counter() - start) / n


@bench
def buffer(n: int, size: int) -> float:
    context, make = opened()[0], cl.Buffer
    start = perf_counter()
    for _ in repeat(None, n):
        make(context, FLAGS, size)
    return (perf_counter() - start) / n


@bench
def buffer_pool(n: int, size: int) -> float:
    """pyopencl's own memory pool."""
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    pool = MemoryPool(ImmediateAllocator(opened()[1]))
    pool.allocate(size)
    start = perf_counter()
    for _ in repeat(None, n):
        pool.allocate(size)
    return (perf_counter() - start) / n


@bench
def view(n: int) -> float:
    root = cl.Buffer(opened()[0], FLAGS, 4096)
    start = perf_counter()
    for _ in repeat(None, n):
        root.get_sub_region(1024, 1024)
    return (perf_counter() - start) / n


@lru_cache(maxsize=1)
def host(size: int) -> Any:
    return np.full(size, 0x5A, np.uint8)


@bench
def copyin(n: int, size: int) -> float:
    queue, buf, data = opened()[1], buffers(1, size)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        cl.enqueue_copy(queue, buf, data)
    return (perf_counter() - start) / n


@bench
def copyout(n: int, size: int) -> float:
    queue, buf, data = opened()[1], buffers(1, size)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        cl.enqueue_copy(queue, data, buf)
    return (perf_counter() - start) / n


@bench
def device_copy(n: int, size: int) -> float:
    """Between two buffers of its one device."""
    queue, (source, dest) = opened()[1], buffers(2, size)
    start = perf_counter()
    for _ in repeat(None, n):
        cl.enqueue_copy(queue, dest, source)
    queue.finish()
    return (perf_counter() - start) / n


@bench
def compile(n: int, device: str) -> float:
    """From source to a kernel object. PoCL's own cache never sees the source before."""
    context = opened()[0]
    total = 0.0
    for _ in range(n):
        tag = int(perf_counter() * 1e6) % 10_000_000
        source = kernels.TEN_LINES_CL.format(tag=tag)
        start = perf_counter()
        getattr(cl.Program(context, source).build(), f"f{tag}")
        total += perf_counter() - start
    return total / n


@bench
def import_module(n: int) -> Answer:
    return fresh_median(n, "", "import pyopencl")


@bench
def open_first(n: int) -> Answer:
    return fresh_median(n, "import pyopencl as cl", OPEN)


@bench
def idle(n: int, seconds: float) -> Answer:
    return idle_share("import pyopencl as cl\n" + OPEN + "\nq.finish()", seconds)


@bench
def many_buffers(n: int) -> Answer:
    queue = opened()[1]
    before = mappings()
    start = perf_counter()
    made = [cl.Buffer(opened()[0], FLAGS, 4096) for _ in range(n)]
    for b in made:  # its memory comes at first use
        cl.enqueue_fill_buffer(queue, b, np.uint8(0), 0, 64)
    queue.finish()
    took = (perf_counter() - start) / n
    added = mappings() - before
    del made
    return {"value": added, "each": took}


@bench
def many_devices(n: int) -> Answer:
    """As near as it gets: a context and a queue each."""
    setup = "import pyopencl as cl\np = next(p for p in cl.get_platforms() if 'Portable Computing' in p.name)\nall = []"
    run = f"for k in range({n}):\n  ctx = cl.Context(p.get_devices()); all.append((ctx, cl.CommandQueue(ctx)))"
    return fresh(setup, run)


@lru_cache
def kernel(name: str) -> Any:
    source = kernels.TRIAD_CL if name == "triad" else kernels.REDUCE_CL
    return getattr(cl.Program(opened()[0], source).build(), name)


@bench
def triad(n: int) -> float:
    queue, (a, b, c) = opened()[1], buffers(3, 4 * kernels.STREAM_COUNT)
    run = kernel("triad")
    start = perf_counter()
    for _ in repeat(None, n):
        run(queue, (kernels.STREAM_COUNT,), None, a, b, c, np.float32(3))
    queue.finish()
    return (perf_counter() - start) / n


@bench
def reduce(n: int) -> float:
    queue, (sums, x, _) = opened()[1], buffers(3, 4 * kernels.STREAM_COUNT)
    run = kernel("reduce")
    start = perf_counter()
    for _ in repeat(None, n):
        run(queue, (kernels.STREAM_COUNT,), (kernels.BLOCK,), sums, x)
    queue.finish()
    return (perf_counter() - start) / n


if __name__ == "__main__":
    serve()
