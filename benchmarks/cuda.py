"""What CUDA costs through hcq, beside cuda-bindings, cuda.core, CuPy and torch where they are here: one table.

    python -m benchmarks.cuda [FILE]

Each row is the same work by each of them, in turns, the least of some rounds. `scripts/gpu_check.sh` runs it on a
machine with a GPU; with HCQ_CUDA=cpu it runs on the CPU, where its figures say nothing of a GPU. What does not live
here: the budgets of the other devices (rows).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import hcq
from hcq.drivers.cuda.compiler import read_library

ROUNDS = 7
NAMES = ("hcq", "cuda-bindings", "cuda.core", "CuPy", "torch")
SOURCE = """
extern "C" __global__ void add(float *out, const float *a, const float *b) { out[0] = a[0] + b[0]; }
extern "C" __global__ void triad(float *out, const float *a, const float *b, float s, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    out[i] = a[i] + s * b[i];
}
"""


Side = dict[str, Callable[[int], None]]  # what somebody does, by the row's name; "settle" waits for it


class Row(NamedTuple):
    """A line of the table: `run` by name does the work `count` times, `settle` waits for it; `bytes` moved each time
    make it a rate."""

    what: str
    count: int
    bytes: int
    run: Side
    settle: Side


def rows(dev: Any, large: int) -> Iterator[Row]:
    """Everything that is measured; `large` elements in what is bound by memory."""
    peers = [_tried(name, make, large) for name, make in zip(NAMES[1:], (_bindings, _core, _cupy, _torch), strict=True)]
    with hcq_side(dev, large) as ours:
        for what, count, size in (
            ("launch of three buffers, queued (us)", 2000, 0),
            ("the same, arguments bound (us)", 2000, 0),
            ("launch and wait (us)", 500, 0),
            ("replay of a graph of 100 launches, queued (us)", 50, 0),
            ("copy to the device (GB/s)", 3, 4 * large),
            ("copy from the device (GB/s)", 3, 4 * large),
            ("copy within the device (GB/s)", 5, 8 * large),
            ("triad (GB/s)", 5, 12 * large),
        ):
            sides = {name: side for name, side in zip(NAMES, (ours, *peers), strict=True) if side and what in side}
            runs, waits = ({name: side[key] for name, side in sides.items()} for key in (what, "settle"))
            yield Row(what, count, size, runs, waits)


@contextmanager
def hcq_side(dev: Any, large: int) -> Iterator[Side]:
    """hcq's own."""
    add, triad = dev.program("add", SOURCE), dev.program("triad", SOURCE)
    a, b, c = (hcq.array(np.ones(large, np.float32), dev.dname) for _ in range(3))
    host, back = np.ones(large, np.float32), np.empty(large, np.float32)
    bound = add.prepare(a, b, c)
    with hcq.capture() as graph:
        for _ in range(100):
            add(a, b, c)
    sweep = triad.prepare(a, b, c, vals=(2.0, large), global_size=(1024, 1, 1), local_size=(256, 1, 1))

    def wait(count: int) -> None:
        for _ in range(count):
            add(a, b, c)
            dev.synchronize()

    def copies(make: Callable[[], object]) -> Callable[[int], None]:
        def run(count: int) -> None:
            for _ in range(count):
                make()
            dev.synchronize()

        return run

    yield {
        "launch of three buffers, queued (us)": lambda count: _repeat(count, lambda: add(a, b, c)),
        "the same, arguments bound (us)": lambda count: _repeat(count, bound),
        "launch and wait (us)": wait,
        "replay of a graph of 100 launches, queued (us)": lambda count: _repeat(count, graph.replay),
        "copy to the device (GB/s)": copies(lambda: a.copyin(host)),
        "copy from the device (GB/s)": copies(lambda: a.copyout(back)),
        "copy within the device (GB/s)": copies(lambda: hcq.copy(b, a)),
        "triad (GB/s)": copies(sweep),
        "settle": lambda count: dev.synchronize(),
    }


def _tried(name: str, make: Callable[[int], Side | None], large: int) -> Side | None:
    """A peer's side; None where it is not here, or is for another CUDA than this driver's, which is told."""
    try:
        return make(large)
    except Exception as error:
        print(f"{name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _repeat(count: int, call: Callable[[], object]) -> None:
    for _ in range(count):
        call()


def _bindings(large: int) -> Side | None:
    """The driver's own calls by cuda-bindings, with page-locked memory of the host: what link and memory can do."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None

    def call(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(f"CUDA: {result[0]}")
        return result[1] if len(result) == 2 else result[1:]

    context = call(driver.cuDevicePrimaryCtxRetain(0))
    call(driver.cuCtxSetCurrent(context))
    library = read_library(hcq.Device["CUDA"].compiler.compile_cached(SOURCE))
    module = call(driver.cuModuleLoadData(library.image))
    add, triad = (call(driver.cuModuleGetFunction(module, name)) for name in (b"add", b"triad"))
    stream = call(driver.cuStreamCreate(1))
    a, b, c = (int(call(driver.cuMemAlloc(4 * large))) for _ in range(3))
    host = int(call(driver.cuMemHostAlloc(4 * large, 0)))
    pointer = ctypes.c_void_p
    plain = ((a, b, c), (pointer, pointer, pointer))
    held = [pointer(each) for each in (a, b, c)]
    packed = (pointer * 3)(*(ctypes.addressof(each) for each in held))
    many = ((a, b, c, 2.0, large), (pointer, pointer, pointer, ctypes.c_float, ctypes.c_longlong))

    def launch(arguments: Any) -> None:
        driver.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0)

    def wait(count: int) -> None:
        for _ in range(count):
            launch(ctypes.addressof(packed))
            driver.cuStreamSynchronize(stream)

    def settled(make: Callable[[], object]) -> Callable[[int], None]:
        def run(count: int) -> None:
            _repeat(count, make)
            driver.cuStreamSynchronize(stream)

        return run

    return {
        "launch of three buffers, queued (us)": lambda count: _repeat(count, lambda: launch(plain)),
        "the same, arguments bound (us)": lambda count: _repeat(count, lambda: launch(ctypes.addressof(packed))),
        "launch and wait (us)": wait,
        "copy to the device (GB/s)": settled(lambda: driver.cuMemcpyHtoDAsync(a, host, 4 * large, stream)),
        "copy from the device (GB/s)": settled(lambda: driver.cuMemcpyDtoHAsync(host, a, 4 * large, stream)),
        "copy within the device (GB/s)": settled(lambda: driver.cuMemcpyDtoDAsync(b, a, 4 * large, stream)),
        "triad (GB/s)": settled(lambda: driver.cuLaunchKernel(triad, 1024, 1, 1, 256, 1, 1, 0, stream, many, 0)),
        "settle": lambda count, kept=held: driver.cuStreamSynchronize(stream),  # what `packed` points to lives with it
    }


def _core(large: int) -> Side | None:
    """cuda.core: the same kernel from the same PTX."""
    try:
        from cuda.core import Device, LaunchConfig, ObjectCode, launch
    except ImportError:
        return None
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    library = read_library(hcq.Device["CUDA"].compiler.compile_cached(SOURCE))
    kernel = ObjectCode.from_ptx(library.image).get_kernel("add")
    memory = [device.memory_resource.allocate(64, stream=stream) for _ in range(3)]
    config = LaunchConfig(grid=1, block=1)
    stream.sync()

    def once() -> None:
        launch(stream, config, kernel, *memory)

    def wait(count: int) -> None:
        for _ in range(count):
            once()
            stream.sync()

    builder = stream.create_graph_builder()
    builder.begin_building()
    for _ in range(100):
        launch(builder, config, kernel, *memory)
    graph = builder.end_building().complete()
    return {
        "launch of three buffers, queued (us)": lambda count: _repeat(count, once),
        "launch and wait (us)": wait,
        "replay of a graph of 100 launches, queued (us)": lambda count: _repeat(count, lambda: graph.launch(stream)),
        "settle": lambda count: stream.sync(),
    }


def _cupy(large: int) -> Side | None:
    """CuPy: raw kernels, and its own element-wise triad."""
    try:
        import cupy
    except ImportError:
        return None
    add = cupy.RawKernel(SOURCE, "add")
    a, b, c = (cupy.ones(large, cupy.float32) for _ in range(3))
    host = np.ones(large, np.float32)
    stream = cupy.cuda.get_current_stream()
    fused = cupy.ElementwiseKernel("float32 a, float32 b", "float32 out", "out = a + 2.0f * b", "triad")

    def wait(count: int) -> None:
        for _ in range(count):
            add((1,), (1,), (a, b, c))
            stream.synchronize()

    def settled(make: Callable[[], object]) -> Callable[[int], None]:
        def run(count: int) -> None:
            _repeat(count, make)
            stream.synchronize()

        return run

    return {
        "launch of three buffers, queued (us)": lambda count: _repeat(count, lambda: add((1,), (1,), (a, b, c))),
        "launch and wait (us)": wait,
        "copy to the device (GB/s)": settled(lambda: a.set(host)),
        "copy from the device (GB/s)": settled(lambda: a.get(out=host)),
        "copy within the device (GB/s)": settled(lambda: cupy.copyto(b, a)),
        "triad (GB/s)": settled(lambda: fused(b, c, a)),
        "settle": lambda count: stream.synchronize(),
    }


def _torch(large: int) -> Side | None:
    """torch, whose launches are those of its own operators."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    small = [torch.ones(1, device="cuda") for _ in range(3)]
    a, b, c = (torch.ones(large, device="cuda") for _ in range(3))
    host = torch.ones(large)
    settle = torch.cuda.synchronize

    def once() -> None:
        torch.add(small[1], small[2], out=small[0])

    def wait(count: int) -> None:
        for _ in range(count):
            once()
            settle()

    def settled(make: Callable[[], object]) -> Callable[[int], None]:
        def run(count: int) -> None:
            _repeat(count, make)
            settle()

        return run

    graph = torch.cuda.CUDAGraph()
    once()
    settle()
    with torch.cuda.graph(graph):
        for _ in range(100):
            once()
    return {
        "launch of three buffers, queued (us)": lambda count: _repeat(count, once),
        "launch and wait (us)": wait,
        "replay of a graph of 100 launches, queued (us)": lambda count: _repeat(count, graph.replay),
        "copy to the device (GB/s)": settled(lambda: a.copy_(host)),
        "copy from the device (GB/s)": settled(lambda: host.copy_(a)),
        "copy within the device (GB/s)": settled(lambda: b.copy_(a)),
        "triad (GB/s)": settled(lambda: torch.add(b, c, alpha=2.0, out=a)),
        "settle": lambda count: settle(),
    }


def table(dev: Any, large: int) -> str:
    """The table, as Markdown."""
    about = dev.info
    lines = [
        f"{about['device']}, {about['version']}, compute capability {about['compute capability']}; "
        f"Python {sys.version.split()[0]}. The least of {ROUNDS} rounds, in turns; large: {4 * large >> 20} MiB.",
        "",
        f"| what | {' | '.join(NAMES)} |",
        "|---|" + "---|" * len(NAMES),
    ]
    for row in rows(dev, large):
        least: dict[str, float] = {}
        failed: set[str] = set()
        for _ in range(ROUNDS):
            for name, run in row.run.items():
                if name in failed:
                    continue
                try:
                    began = time.perf_counter()
                    run(row.count)
                    took = (time.perf_counter() - began) / row.count
                    row.settle[name](1)
                except Exception as error:
                    if name == "hcq":
                        raise
                    print(f"{name} can't: {row.what}: {type(error).__name__}: {error}", file=sys.stderr)
                    failed.add(name)
                    least.pop(name, None)
                    continue
                least[name] = min(took, least.get(name, took))
        shown = {
            name: f"{row.bytes / took / 1e9:.1f}" if row.bytes else f"{took * 1e6:.2f}" for name, took in least.items()
        }
        lines.append(f"| {row.what} | {' | '.join(shown.get(name, '') for name in NAMES)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it to the file that is named."""
    dev = hcq.Device["CUDA"]
    # Twelve arrays of that size at a time: a quarter of a small GPU's memory at most.
    large = (1 << 20) if dev.is_cpu_implementation else min(64 << 20, int(dev.info["memory"]) // (4 * 48))
    text = table(dev, large)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
