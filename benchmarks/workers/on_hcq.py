"""hcq itself, through its public interface, as a worker like every peer."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any

import files
import graphs  # noqa: F401  its benches are this worker's
import kernels
import portable  # noqa: F401  as above
import vulkan  # noqa: F401  as above
import weights
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

import hcq

VERSIONS["hcq"] = hcq.__version__
I32, F32, U8 = hcq.dtypes.int32, hcq.dtypes.float32, hcq.dtypes.uint8
PREFACE = "import hcq\nd = hcq.Device['CLANG']\n"
weights.LOAD["call"] = lambda paths: hcq.load(paths[0] if len(paths) == 2 else paths[-1], "CLANG")
weights.SOURCE["setup"] = PREFACE
weights.SOURCE["load"] = "loaded = hcq.load(paths[0] if len(paths) == 2 else paths[-1], 'CLANG')"


@lru_cache
def buffers(device: str, count: int = 3, elements: int = 1024, dtype: Any = I32) -> list[Any]:
    made = [hcq.Buffer(device, elements, dtype).allocate() for _ in range(count)]
    for k, b in enumerate(made):
        b.copyin(bytes([k == 0, 0, 0, 0]) * elements if dtype is I32 else bytes(elements * dtype.itemsize))
    return made


@lru_cache
def add(device: str) -> Any:
    if device.startswith("LLVM"):
        source = (
            "define void @add(ptr %a, ptr %b, ptr %c) {\n %x = load i32, ptr %a\n %y = load i32, ptr %b\n"
            " %z = load i32, ptr %c\n %s = add i32 %x, %y\n %t = add i32 %z, %s\n store i32 %t, ptr %c\n ret void\n}\n"
        )
        return hcq.Device[device].program("add", source)
    return hcq.Device[device].program("add", kernels.ADD_CL if device.startswith("GPU") else kernels.ADD_C)


class Counted:
    """Looks at c before and after: every launch adds one to it (a[0] is 1, b[0] is 0)."""

    def __init__(self, device: str, launches: int) -> None:
        self.c = buffers(device)[2]
        self.launches = launches

    def read(self) -> int:
        out = bytearray(self.c.nbytes)
        self.c.copyout(memoryview(out))
        return int.from_bytes(out[:4], "little")

    def __enter__(self) -> None:
        self.before = self.read()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            expect("launches that ran", (self.read() - self.before) & 0xFFFFFFFF, self.launches & 0xFFFFFFFF)


# --- launches --------------------------------------------------------------------------------------------------------


@bench
def launch(n: int, device: str = "CLANG") -> Answer:
    """n launches queued, until the last has finished. Also how much of that the calls alone took."""
    dev, prg, (a, b, c) = hcq.Device[device], add(device), buffers(device)
    with Counted(device, n):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c)
        called = perf_counter()
        dev.synchronize()
        end = perf_counter()
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def profiled(n: int, device: str = "CLANG") -> Answer:
    """How much longer n queued launches take with a profile on than without, in turns; medians of each."""
    off, on = [], []
    for _ in range(7):
        off.append(launch(n, device)["value"])
        with hcq.profile() as p:
            on.append(launch(n, device)["value"])
        expect("kernels recorded", sum(span.kind == "kernel" for span in p.spans), n)
    without, with_one = median(off), median(on)
    return {"value": with_one / without, "without": without, "with one": with_one}


@bench
def checked(n: int, device: str = "CLANG") -> Answer:
    """n queued launches inside hcq.checks(), and outside."""
    without = launch(n, device)["value"]
    with hcq.checks(strict=True) as c:
        dev, prg = hcq.Device[device], add(device)
        x, y, z = (hcq.empty(1024, I32, device).fill(value) for value in (1, 0, 0))  # with red zones
        start = perf_counter()
        for _ in repeat(None, n):
            prg(x, y, z)
        dev.synchronize()
        end = perf_counter()
        expect("launches that ran", int(z.numpy()[0]), n)
    expect("findings", len(c.findings) + len(c.possible), 0)
    return {"value": (end - start) / n, "without": without}


@bench
def prepared(n: int, device: str = "CLANG") -> Answer:
    dev, prg, bufs = hcq.Device[device], add(device), buffers(device)
    go = prg.prepare(*bufs)
    with Counted(device, n):
        start = perf_counter()
        for _ in repeat(None, n):
            go()
        called = perf_counter()
        dev.synchronize()
        end = perf_counter()
    return {"value": (end - start) / n, "calls alone": (called - start) / n}


@bench
def launch_call(n: int, device: str = "CLANG") -> float:
    """The calls alone, 32 at a time: so many that a queue which has to wait for the device never has to."""
    dev, prg, (a, b, c) = hcq.Device[device], add(device), buffers(device)
    took = 0.0
    with Counted(device, n // 32 * 32):
        for _ in range(n // 32):
            start = perf_counter()
            for _ in repeat(None, 32):
                prg(a, b, c)
            took += perf_counter() - start
            dev.synchronize()
    return took / (n // 32 * 32)


@bench
def launch_wake(n: int, pause: float, device: str = "CLANG") -> float:
    dev, prg, (a, b, c) = hcq.Device[device], add(device), buffers(device)
    with Counted(device, n):
        return sampled(n, pause, lambda: prg(a, b, c), dev.synchronize)


@bench
def launch_synchronize(n: int, busy: str = "", device: str = "CLANG") -> float:
    dev, prg, (a, b, c) = hcq.Device[device], add(device), buffers(device)
    with Counted(device, n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c)
            dev.synchronize()
        return (perf_counter() - start) / n


@bench
def launch_wait(n: int, busy: str = "", device: str = "CLANG") -> float:
    prg, (a, b, c) = add(device), buffers(device)
    with Counted(device, n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c, wait=True)
        return (perf_counter() - start) / n


# --- signals ---------------------------------------------------------------------------------------------------------


@bench
def signal_query(n: int) -> float:
    signal = hcq.HCQSignal(7)
    start = perf_counter()
    for _ in repeat(None, n):
        signal.value  # noqa: B018
    return (perf_counter() - start) / n


@bench
def signal_set(n: int) -> float:
    signal = hcq.HCQSignal(7)
    start = perf_counter()
    for _ in repeat(None, n):
        signal.value = 9
    return (perf_counter() - start) / n


@bench
def signal_wait(n: int) -> float:
    signal = hcq.HCQSignal(7)
    start = perf_counter()
    for _ in repeat(None, n):
        signal.wait(7)
    return (perf_counter() - start) / n


# --- bound queues ----------------------------------------------------------------------------------------------------


@lru_cache
def bound(commands: int) -> Any:
    dev = hcq.Device["CLANG"]
    prg, bufs = add("CLANG"), buffers("CLANG")
    kernargs = prg.fill_kernargs([b._buf for b in bufs])
    queue = dev.hw_compute_queue_t()
    for _ in range(commands):
        queue.exec(prg, kernargs, (1, 1, 1), (1, 1, 1))
    queue.bind(dev)
    return queue


def drain(dev: Any) -> None:
    """All submits so far have finished: a signal after them on the same queue."""
    value = dev.next_timeline()
    dev.hw_compute_queue_t().signal(dev.timeline_signal, value).submit(dev)
    dev.synchronize()


@bench
def bound_submit(n: int, commands: int, in_flight: int = 4) -> float:
    """What a submit takes on the host, with up to `in_flight` of them under way."""
    dev, queue = hcq.Device["CLANG"], bound(commands)
    took = 0.0
    with Counted("CLANG", n * commands):
        for first in range(0, n, in_flight):
            start = perf_counter()
            for _ in repeat(None, min(in_flight, n - first)):
                queue.submit(dev)
            took += perf_counter() - start
            drain(dev)
    return took / n


@bench
def bound_command(n: int, commands: int) -> float:
    """Submit to finish, for each command."""
    dev, queue = hcq.Device["CLANG"], bound(commands)
    with Counted("CLANG", n * commands):
        start = perf_counter()
        for _ in repeat(None, n):
            queue.submit(dev)
        drain(dev)
        return (perf_counter() - start) / n / commands


@bench
def bound_update(n: int, commands: int, updates: int) -> float:
    """update_exec of `updates` commands and the submit that carries them, for each update, less an unchanged submit."""
    dev, queue = hcq.Device["CLANG"], bound(commands)
    changed = unchanged = 0.0
    with Counted("CLANG", 2 * n * commands):
        for _ in range(n):
            start = perf_counter()
            for k in range(updates):
                queue.update_exec(k, (1, 1, 1), (1, 1, 1))
            queue.submit(dev)
            changed += perf_counter() - start
            drain(dev)
            start = perf_counter()
            queue.submit(dev)
            unchanged += perf_counter() - start
            drain(dev)
    return (changed - unchanged) / n / updates


# --- buffers and copies ----------------------------------------------------------------------------------------------


@bench
def buffer(n: int, size: int) -> float:
    make = hcq.Buffer
    keep = make("CLANG", size, U8).allocate()
    del keep
    start = perf_counter()
    for _ in repeat(None, n):
        make("CLANG", size, U8).allocate()
    return (perf_counter() - start) / n


@bench
def view(n: int) -> float:
    root = hcq.Buffer("CLANG", 4096, U8).allocate()
    start = perf_counter()
    for _ in repeat(None, n):
        root.view(1024, U8, 1024)
    return (perf_counter() - start) / n


@lru_cache(maxsize=1)
def host(size: int) -> memoryview:
    return memoryview(bytearray(b"\x5a" * size))


@bench
def copyin(n: int, size: int) -> float:
    buf, mv = buffers("CLANG", 1, size, U8)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        buf.copyin(mv)
    took = (perf_counter() - start) / n
    expect("the last byte", bytes(buf.as_buffer()[-1:]), b"\x5a")
    return took


@bench
def copyout(n: int, size: int) -> float:
    buf, mv = buffers("CLANG", 1, size, U8)[0], host(size)
    buf.copyin(mv)
    start = perf_counter()
    for _ in repeat(None, n):
        buf.copyout(mv)
    return (perf_counter() - start) / n


@bench
def device_copy(n: int, size: int) -> float:
    source, dest = buffers("CLANG", 1, size, U8)[0], buffers("CLANG:1", 1, size, U8)[0]
    source.copyin(host(size))
    devices = [hcq.Device["CLANG"], hcq.Device["CLANG:1"]]
    start = perf_counter()
    for _ in repeat(None, n):
        hcq.copy(dest, source)
    for dev in devices:
        dev.synchronize()
    took = (perf_counter() - start) / n
    expect("the last byte", bytes(dest.as_buffer()[-1:]), b"\x5a")
    return took


@bench
def read_file(n: int, size: int, cold: bool) -> float:
    name = files.path(size)
    source, dest = hcq.Buffer(f"DISK:{name}", size, U8).allocate(), buffers("CLANG", 1, size, U8)[0]
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        start = perf_counter()
        hcq.copy(dest, source)
        took.append(perf_counter() - start)
    last = source.view(4096, U8, size - 4096).as_buffer()
    expect("the last bytes", bytes(dest.view(4096, U8, size - 4096).as_buffer()), bytes(last))
    return median(took)


# --- compilers, cache, start -----------------------------------------------------------------------------------------


@bench
def compile(n: int, device: str) -> float:
    compiler = hcq.Device[device].compiler
    template = kernels.TEN_LINES_IR if device == "LLVM" else kernels.TEN_LINES_C
    total = 0.0
    for k in range(n):
        source = template.format(tag=3000 + k)
        start = perf_counter()
        compiler.compile(source)
        total += perf_counter() - start
    return total / n


CACHED = kernels.TEN_LINES_C.format(tag=77)


@bench
def cache_first(n: int) -> Answer:
    hcq.Device["CLANG"].compiler.compile_cached(CACHED)
    return fresh_median(n, PREFACE + f"src = {CACHED!r}", "d.compiler.compile_cached(src)")


@bench
def cache_again(n: int) -> float:
    compiler = hcq.Device["CLANG"].compiler
    compiler.compile_cached(CACHED)
    start = perf_counter()
    for _ in repeat(None, n):
        compiler.compile_cached(CACHED)
    return (perf_counter() - start) / n


@bench
def import_module(n: int) -> Answer:
    after = "import sys; extra = {'NumPy and llvmlite': [m for m in ('numpy', 'llvmlite') if m in sys.modules]}"
    return fresh_median(n, "", "import hcq", after)


@bench
def open_first(n: int, device: str = "CLANG") -> Answer:
    return fresh_median(n, "import hcq", f"hcq.Device[{device!r}]")


# --- kernels ---------------------------------------------------------------------------------------------------------


@lru_cache
def stream(device: str) -> list[Any]:
    made = [hcq.Buffer(device, kernels.STREAM_COUNT, F32).allocate() for _ in range(3)]
    import numpy

    for k, b in enumerate(made):
        b.copyin(numpy.full(kernels.STREAM_COUNT, k + 1, numpy.float32))
    return made


@lru_cache
def kernel(device: str, name: str, is_portable: bool = False) -> Any:
    if is_portable:
        import streams

        made = getattr(streams, name)
        return hcq.Device[device].program(name, made.source(device))
    sources = {
        ("CLANG", "triad"): kernels.TRIAD_HCQ,
        ("CLANG", "reduce"): kernels.REDUCE_HCQ,
        ("LLVM", "triad"): kernels.TRIAD_IR,
        ("LLVM", "reduce"): kernels.REDUCE_IR,
    }
    return hcq.Device[device].program(name, sources[device, name])


def check_float(what: str, buf: Any, wanted: float) -> None:
    import numpy

    got = numpy.frombuffer(buf.as_buffer(), numpy.float32)
    expect(what, (float(got[0]), float(got[-1])), (wanted, wanted))


@bench
def triad(n: int, device: str, is_portable: bool = False) -> float:
    dev, prg, (a, b, c) = hcq.Device[device], kernel(device, "triad", is_portable), stream(device)
    # CLANG: a group of one item takes a chunk, in a loop; LLVM: an element an item
    items = kernels.STREAM_ITEMS if device == "LLVM" else 1
    groups = (kernels.STREAM_COUNT // (items if device == "LLVM" else kernels.STREAM_CHUNK), 1, 1)
    start = perf_counter()
    for _ in repeat(None, n):
        prg(a, b, c, global_size=groups, local_size=(items, 1, 1), vals=(3.0,))
    dev.synchronize()
    took = (perf_counter() - start) / n
    check_float("b + 3 c", a, 11.0)
    return took


@bench
def reduce(n: int, device: str, is_portable: bool = False) -> float:
    dev, prg, (sums, _, x) = hcq.Device[device], kernel(device, "reduce", is_portable), stream(device)
    start = perf_counter()
    for _ in repeat(None, n):
        prg(sums, x, global_size=(kernels.BLOCKS, 1, 1), local_size=(kernels.BLOCK, 1, 1))
    dev.synchronize()
    took = (perf_counter() - start) / n
    import numpy

    got = numpy.frombuffer(sums.as_buffer(), numpy.float32)
    expect("sums of 256 threes", (float(got[0]), float(got[kernels.BLOCKS - 1])), (768.0, 768.0))
    return took


# --- idling and size -------------------------------------------------------------------------------------------------


@bench
def idle(n: int, seconds: float) -> Answer:
    """With two devices open that have run something."""
    setup = (
        "import hcq\n"
        "for name in ('CLANG', 'CLANG:1'):\n"
        f"  d = hcq.Device[name]; p = d.program('add', {kernels.ADD_C!r})\n"
        "  bufs = [hcq.Buffer(name, 1024, hcq.dtypes.int32).allocate() for _ in range(3)]\n"
        "  p(*bufs); d.synchronize()\n"
    )
    return idle_share(setup, seconds)


@bench
def flat(n: int) -> Answer:
    """How much slower the last tenth of n launches is than the first."""
    dev, prg, (a, b, c) = hcq.Device["CLANG"], add("CLANG"), buffers("CLANG")

    def run(count: int) -> None:
        for _ in repeat(None, count):
            prg(a, b, c)

    with Counted("CLANG", n // 100 * 100):
        answer = tenths(n, run)
        dev.synchronize()
    return answer


@bench
def many_buffers(n: int) -> Answer:
    before = mappings()
    start = perf_counter()
    made = [hcq.Buffer("CLANG", 4096, U8).allocate() for _ in range(n)]
    took = (perf_counter() - start) / n
    added = mappings() - before
    del made
    allocator = hcq.Device["CLANG"].allocator
    if hasattr(allocator, "free_cache"):
        allocator.free_cache()
    return {"value": added, "each": took}


@bench
def many_devices(n: int) -> Answer:
    """After a first one, which start.open is about."""
    run = f"for k in range({n}): hcq.Device[f'CLANG:{{k + 1}}']"
    return fresh("import os\n" + PREFACE, run, "extra = {'threads': len(os.listdir('/proc/self/task'))}")


if __name__ == "__main__":
    serve()
