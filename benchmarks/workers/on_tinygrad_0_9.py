"""tinygrad 0.9.2: CLANG calls the function at once, on the caller's thread; LLVM needs an llvmlite of its time."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from itertools import repeat
from time import perf_counter
from typing import Any

import kernels
import programs  # noqa: F401
from serve import VERSIONS, Answer, bench, busy_thread, expect, fresh, fresh_median, idle_share, mappings, serve, tenths
from tinygrad.device import Buffer, Device
from tinygrad.dtype import dtypes

VERSIONS["tinygrad"] = version("tinygrad")
PREFACE = "from tinygrad.device import Device\n"


@lru_cache
def buffers(count: int = 3, elements: int = 1024, dtype: Any = dtypes.int32) -> list[Any]:
    made = [Buffer("CLANG", elements, dtype).allocate() for _ in range(count)]
    for k, b in enumerate(made):
        data = bytes([k == 0, 0, 0, 0]) * elements if dtype is dtypes.int32 else bytes(elements * dtype.itemsize)
        b.copyin(memoryview(bytearray(data)))
    return made


@lru_cache
def add() -> tuple[Any, list[Any]]:
    dev = Device["CLANG"]
    return dev.runtime("add", dev.compiler.compile(kernels.ADD_C)), [b._buf for b in buffers()]


class Counted:
    """Looks at c before and after: every launch adds one to it."""

    def __init__(self, launches: int) -> None:
        self.launches = launches

    def read(self) -> int:
        out = memoryview(bytearray(4096))
        buffers()[2].copyout(out)
        return int.from_bytes(out[:4], "little")

    def __enter__(self) -> None:
        self.before = self.read()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            expect("launches that ran", (self.read() - self.before) & 0xFFFFFFFF, self.launches & 0xFFFFFFFF)


@bench
def launch(n: int) -> float:
    prg, (a, b, c) = add()
    with Counted(n):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c)
        return (perf_counter() - start) / n


@bench
def launch_wait(n: int, busy: str = "") -> float:
    prg, (a, b, c) = add()
    with Counted(n), busy_thread(busy):
        start = perf_counter()
        for _ in repeat(None, n):
            prg(a, b, c, wait=True)
        return (perf_counter() - start) / n


@bench
def flat(n: int) -> Answer:
    prg, (a, b, c) = add()

    def run(count: int) -> None:
        for _ in repeat(None, count):
            prg(a, b, c)

    return tenths(n, run)


@bench
def buffer(n: int, size: int) -> float:
    start = perf_counter()
    for _ in repeat(None, n):
        Buffer("CLANG", size, dtypes.uint8).allocate()
    return (perf_counter() - start) / n


@bench
def view(n: int) -> float:
    root = Buffer("CLANG", 4096, dtypes.uint8).allocate()
    start = perf_counter()
    for _ in repeat(None, n):
        root.view(1024, dtypes.uint8, 1024)
    return (perf_counter() - start) / n


@lru_cache(maxsize=1)
def host(size: int) -> memoryview:
    return memoryview(bytearray(b"\x5a" * size))


@bench
def copyin(n: int, size: int) -> float:
    buf, mv = buffers(1, size, dtypes.uint8)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        buf.copyin(mv)
    return (perf_counter() - start) / n


@bench
def copyout(n: int, size: int) -> float:
    buf, mv = buffers(1, size, dtypes.uint8)[0], host(size)
    start = perf_counter()
    for _ in repeat(None, n):
        buf.copyout(mv)
    return (perf_counter() - start) / n


@bench
def compile(n: int, device: str) -> float:
    compiler = Device[device].compiler
    template = kernels.TEN_LINES_IR_TYPED if device == "LLVM" else kernels.TEN_LINES_C
    total = 0.0
    for k in range(n):
        source = template.format(tag=3000 + k)
        start = perf_counter()
        compiler.compile(source)
        total += perf_counter() - start
    return total / n


@bench
def compile_ir(n: int) -> float:
    """The llvmlite that its LLVM device needs, by itself: parse, optimise at O3 for this processor, emit an object."""
    from llvmlite import binding as llvm

    machine = llvm_machine()
    total = 0.0
    for k in range(n):
        source = kernels.TEN_LINES_IR_TYPED.format(tag=4000 + k)
        start = perf_counter()
        module = llvm.parse_assembly(source)
        builder = llvm.create_pass_manager_builder()
        builder.opt_level = 3
        builder.loop_vectorize = builder.slp_vectorize = True
        passes = llvm.create_module_pass_manager()
        machine.add_analysis_passes(passes)
        builder.populate(passes)
        passes.run(module)
        machine.emit_object(module)
        total += perf_counter() - start
    return total / n


@lru_cache
def llvm_machine() -> Any:
    import llvmlite
    from llvmlite import binding as llvm

    llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    VERSIONS["llvmlite"] = llvmlite.__version__
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )


CACHED = kernels.TEN_LINES_C.format(tag=77)


@bench
def cache_first(n: int) -> Answer:
    Device["CLANG"].compiler.compile_cached(CACHED)
    return fresh_median(n, PREFACE + f"src = {CACHED!r}\nd = Device['CLANG']", "d.compiler.compile_cached(src)")


@bench
def cache_again(n: int) -> float:
    compiler = Device["CLANG"].compiler
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
    return fresh_median(n, PREFACE, "Device['CLANG']")


@bench
def idle(n: int, seconds: float) -> Answer:
    return idle_share(PREFACE + "Device['CLANG']", seconds)


@bench
def many_buffers(n: int) -> Answer:
    before = mappings()
    start = perf_counter()
    made = [Buffer("CLANG", 4096, dtypes.uint8).allocate() for _ in range(n)]
    took = (perf_counter() - start) / n
    added = mappings() - before
    del made
    return {"value": added, "each": took}


@bench
def many_devices(n: int) -> Answer:
    return fresh(PREFACE + "Device['CLANG']", f"for k in range({n}): Device[f'CLANG:{{k + 1}}']")


@bench
def triad(n: int) -> float:
    """Its CLANG device runs a kernel on one thread."""
    dev = Device["CLANG"]
    prg, bufs = stream_program(dev)
    start = perf_counter()
    for _ in repeat(None, n):
        prg(*bufs)
    return (perf_counter() - start) / n


@lru_cache
def stream_program(dev: Any) -> tuple[Any, list[Any]]:
    made = buffers(3, kernels.STREAM_COUNT, dtypes.float32)
    return dev.runtime("triad", dev.compiler.compile(kernels.TRIAD_C)), [b._buf for b in made]


if __name__ == "__main__":
    serve()
