"""tinygrad 0.14: its CPU device has queues of its own generation, and a thread that runs them."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.metadata import version
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any

import files
import kernels
import weights
from serve import (
    VERSIONS,
    Answer,
    Missing,
    bench,
    busy_thread,
    expect,
    fresh,
    fresh_median,
    idle_share,
    sampled,
    serve,
    tenths,
)
from tinygrad.device import Buffer, Device, TinyELF
from tinygrad.dtype import dtypes
from tinygrad.nn.state import safe_load

VERSIONS["tinygrad"] = version("tinygrad")
PREFACE = "from tinygrad.device import Buffer, Device\nfrom tinygrad.dtype import dtypes\n"


def load(paths: list[str]) -> dict[str, Any]:
    found = {name: x.to("CPU").realize() for path in paths[:-1] for name, x in safe_load(path).items()}
    Device["CPU"].synchronize()
    return found


weights.LOAD["call"] = load
weights.SOURCE["setup"] = "from tinygrad.device import Device\nfrom tinygrad.nn.state import safe_load\nDevice['CPU']"
weights.SOURCE["load"] = (
    "loaded = [x.to('CPU').realize() for path in paths[:-1] for x in safe_load(path).values()]\n"
    "Device['CPU'].synchronize()"
)


@lru_cache
def buffers(device: str = "CPU", count: int = 3, elements: int = 1024, dtype: Any = dtypes.int32) -> list[Any]:
    made = [Buffer(device, elements, dtype).allocate() for _ in range(count)]
    for k, b in enumerate(made):
        data = bytes([k == 0, 0, 0, 0]) * elements if dtype is dtypes.int32 else bytes(elements * dtype.itemsize)
        b.copy_from(from_host(bytearray(data)))
    return made


def from_host(data: Any) -> Any:
    return Buffer("PYTHON", len(data), dtypes.uint8, opaque=memoryview(data))


def load(name: str, source: str, elements: int, dtype: Any) -> Any:
    """A program from C source: the runtime takes the compiled bytes with a description of the parameters."""
    dev = Device["CPU"]
    signature = tuple(
        (f"data{k}", k, dtype.ptr() if hasattr(dtype, "ptr") else dtypes.uint64, (elements,)) for k in range(3)
    )
    return dev.runtime(TinyELF(dev.compiler.compile(source), name, dev.renderer.target, signature))


@lru_cache
def add() -> tuple[Any, Any, list[Any]]:
    return Device["CPU"], load("add", kernels.ADD_C, 1024, dtypes.int32), [b.get_buf("CPU") for b in buffers()]


class Counted:
    """Looks at c before and after: every launch adds one to it."""

    def __init__(self, launches: int) -> None:
        self.launches = launches

    def read(self) -> int:
        return int.from_bytes(bytes(buffers()[2].as_memoryview()[:4]), "little")

    def __enter__(self) -> None:
        self.before = self.read()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            expect("launches that ran", (self.read() - self.before) & 0xFFFFFFFF, self.launches & 0xFFFFFFFF)


@bench
def launch(n: int) -> Answer:
    dev, prg, (a, b, c) = add()
    with Counted(n):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c)
        called = perf_counter()
        dev.synchronize()
        end = perf_counter()
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def launch_wake(n: int, pause: float) -> float:
    dev, prg, (a, b, c) = add()
    return sampled(n, pause, lambda: prg(a, b, c), dev.synchronize)


@bench
def launch_wait(n: int, busy: str = "") -> float:
    _, prg, (a, b, c) = add()
    with Counted(n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c, wait=True)
        return (perf_counter() - start) / n


@bench
def launch_synchronize(n: int, busy: str = "") -> float:
    dev, prg, (a, b, c) = add()
    with Counted(n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c)
            dev.synchronize()
        return (perf_counter() - start) / n


@bench
def flat(n: int) -> Answer:
    dev, prg, (a, b, c) = add()

    def run(count: int) -> None:
        for _ in repeat(None, count):
            prg(a, b, c)

    answer = tenths(n, run)
    dev.synchronize()
    return answer


@lru_cache
def signal() -> Any:
    """The HCQSignal that its GPU devices use, over 16 bytes of host memory."""
    from tinygrad.runtime.support.hcq import HCQBuffer, HCQSignal, MMIOInterface

    memory = (ctypes.c_uint64 * 8)()
    address = ctypes.addressof(memory)
    made = HCQSignal(base_buf=HCQBuffer(address, 64, view=MMIOInterface(address, 64)), value=7)
    return made, memory


@bench
def signal_query(n: int) -> float:
    sig = signal()[0]
    start = perf_counter()
    for _ in repeat(None, n):
        sig.value  # noqa: B018
    return (perf_counter() - start) / n


@bench
def signal_set(n: int) -> float:
    sig = signal()[0]
    start = perf_counter()
    for _ in repeat(None, n):
        sig.value = 9
    return (perf_counter() - start) / n


@bench
def signal_wait(n: int) -> float:
    sig = signal()[0]
    sig.value = 9
    start = perf_counter()
    for _ in repeat(None, n):
        sig.wait(7)
    return (perf_counter() - start) / n


@bench
def buffer(n: int, size: int) -> float:
    start = perf_counter()
    for _ in repeat(None, n):
        Buffer("CPU", size, dtypes.uint8).allocate()
    return (perf_counter() - start) / n


@bench
def view(n: int) -> float:
    root = Buffer("CPU", 4096, dtypes.uint8).allocate()
    start = perf_counter()
    for _ in repeat(None, n):
        root.view(1024, dtypes.uint8, 1024)
    return (perf_counter() - start) / n


@lru_cache(maxsize=1)
def host(size: int) -> Any:
    return from_host(bytearray(b"\x5a" * size))


@bench
def copyin(n: int, size: int) -> float:
    dev, buf, source = Device["CPU"], buffers("CPU", 1, size, dtypes.uint8)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        buf.copy_from(source)
    dev.synchronize()
    return (perf_counter() - start) / n


@bench
def copyout(n: int, size: int) -> float:
    buf, dest = buffers("CPU", 1, size, dtypes.uint8)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        dest.copy_from(buf)
    return (perf_counter() - start) / n


@bench
def device_copy(n: int, size: int) -> float:
    source, dest = buffers("CPU", 1, size, dtypes.uint8)[0], buffers("CPU:1", 1, size, dtypes.uint8)[0]
    source.copy_from(host(size))
    start = perf_counter()
    for _ in repeat(None, n):
        dest.copy_from(source)
    for name in ("CPU", "CPU:1"):
        Device[name].synchronize()
    took = (perf_counter() - start) / n
    expect("the last byte", bytes(dest.as_memoryview()[-1:]), b"\x5a")
    return took


@bench
def read_file(n: int, size: int, cold: bool) -> float:
    name = files.path(size)
    source, dest = Buffer(f"DISK:{name}", size, dtypes.uint8).allocate(), buffers("CPU", 1, size, dtypes.uint8)[0]
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        start = perf_counter()
        dest.copy_from(source)
        Device["CPU"].synchronize()
        took.append(perf_counter() - start)
    return median(took)


@bench
def compile(n: int, device: str) -> float:
    if device == "LLVM":
        raise Missing("its LLVM takes its own operations, not IR text")
    compiler = Device["CPU"].compiler
    total = 0.0
    for k in range(n):
        source = kernels.TEN_LINES_C.format(tag=3000 + k)
        start = perf_counter()
        compiler.compile(source)
        total += perf_counter() - start
    return total / n


CACHED = kernels.TEN_LINES_C.format(tag=77)


@bench
def cache_first(n: int) -> Answer:
    Device["CPU"].compiler.compile_cached(CACHED)
    return fresh_median(n, PREFACE + f"src = {CACHED!r}\nc = Device['CPU'].compiler", "c.compile_cached(src)")


@bench
def cache_again(n: int) -> float:
    compiler = Device["CPU"].compiler
    compiler.compile_cached(CACHED)
    start = perf_counter()
    for _ in repeat(None, n):
        compiler.compile_cached(CACHED)
    return (perf_counter() - start) / n


@bench
def import_module(n: int) -> Answer:
    return fresh_median(n, "", "import tinygrad")


@bench
def open_first(n: int) -> Answer:
    return fresh_median(n, PREFACE, "Device['CPU']")


@bench
def idle(n: int, seconds: float) -> Answer:
    use = "b = Buffer('CPU', 16, dtypes.uint8).allocate(); Device['CPU'].synchronize()"
    return idle_share(PREFACE + use, seconds)


@bench
def many_buffers(n: int) -> Answer:
    count = "sum(1 for _ in open('/proc/self/maps'))"
    use = f"made = [Buffer('CPU', 4096, dtypes.uint8).allocate() for _ in range({n})]"
    after = f"extra = {{'each': value / {n}}}; value = {count} - before"
    return fresh(PREFACE + f"Device['CPU']; before = {count}", use, after)


@bench
def many_devices(n: int) -> Answer:
    return fresh(PREFACE + "Device['CPU']", f"for k in range({n}): Device[f'CPU:{{k + 1}}']")


@lru_cache
def stream_program() -> tuple[Any, list[Any]]:
    made = buffers("CPU", 3, kernels.STREAM_COUNT, dtypes.float32)
    return load("triad", kernels.TRIAD_C, kernels.STREAM_COUNT, dtypes.float32), [b.get_buf("CPU") for b in made]


@bench
def triad(n: int) -> float:
    """A kernel given as source runs on one thread there."""
    prg, bufs = stream_program()
    start = perf_counter()
    for _ in repeat(None, n):
        prg(*bufs)
    Device["CPU"].synchronize()
    return (perf_counter() - start) / n


if __name__ == "__main__":
    serve()
