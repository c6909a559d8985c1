"""Raw costs: what the machine, the compilers and CPython take by themselves, from C (benchmarks/raw) or built-ins."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from statistics import median
from time import perf_counter

import files
import kernels
from serve import VERSIONS, Answer, Missing, bench, busy_thread, expect, fresh_median, idle_share, serve

SOURCES = Path(__file__).resolve().parent.parent / "raw"
SCRATCH = Path(os.environ.get("HCQ_BENCH_SCRATCH") or tempfile.mkdtemp(prefix="hcq-bench-"))
VERSIONS["Python"] = platform.python_version()


@lru_cache
def compiler() -> str:
    """The C compiler of the raw rows is gcc where there is one, for its OpenMP."""
    found = shutil.which("gcc") or shutil.which("cc")
    if not found:
        raise Missing("no C compiler")
    return found


@lru_cache
def library() -> ctypes.CDLL:
    path = SCRATCH / "raw.so"
    command = [
        compiler(),
        "-O3",
        "-march=native",
        "-fopenmp",
        "-fPIC",
        "-shared",
        str(SOURCES / "raw.c"),
        "-o",
        str(path),
        "-lm",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    lib = ctypes.CDLL(str(path))
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    for name, types in {
        "call": (pointer, pointer, pointer),
        "clock": (),
        "signal_query": (),
        "signal_set": (),
        "wake": (ctypes.c_uint32,),
        "round_trip": (ctypes.c_int,),
        "memcpy": (pointer, pointer, u64, ctypes.c_int),
        "malloc": (u64,),
        "open": (),
        "read_file": (ctypes.c_char_p, pointer, u64),
        "triad": (pointer, pointer, pointer, ctypes.c_float, u64),
        "reduce": (pointer, pointer, u64),
        "reduce_tree": (pointer, pointer, u64),
        "operation": (ctypes.c_int, pointer, pointer, pointer, u64),
    }.items():
        function = getattr(lib, "raw_" + name)
        function.restype, function.argtypes = u64, (u64, *types)
    VERSIONS["C compiler"] = subprocess.run(
        [compiler(), "--version"], capture_output=True, text=True
    ).stdout.splitlines()[0]
    return lib


@lru_cache
def memory(size: int, which: int) -> int:
    """The address of `size` touched bytes; `which` tells several of one size apart."""
    block = mmap.mmap(-1, size)
    keep.append(block)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    ctypes.memset(address, which + 1, size)
    return address


keep: list[object] = []


@lru_cache(maxsize=1)
def touched(size: int) -> memoryview:
    """Touched, so that no page is missing."""
    made = memoryview(mmap.mmap(-1, size))
    for at in range(0, size, 4096):
        made[at] = 1
    return made


@bench
def pread(n: int, size: int, cold: bool) -> float:
    """pread in pieces of 8 MiB, one after the other, into the same memory."""
    name, to = files.path(size), touched(size)
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        with open(name, "rb") as file:
            start, done = perf_counter(), 0
            while done < size:
                done += os.preadv(file.fileno(), [to[done : done + (8 << 20)]], done)
            took.append(perf_counter() - start)
    return median(took)


@bench
def fio(n: int, size: int, cold: bool, depth: int = 1) -> float:
    """fio with one thread: by read, in pieces of 1 MiB; with a depth by io_uring past the page cache, of 2."""
    program = shutil.which("fio")
    if not program:
        raise Missing("no fio on this machine")
    name = files.path(size)
    how = ["--ioengine=psync", "--bs=1M"]
    if depth > 1:
        how = ["--ioengine=io_uring", "--bs=2M", "--direct=1", f"--iodepth={depth}"]
    command = [program, "--name=read", f"--filename={name}", "--rw=read", f"--size={size}", "--readonly", *how]
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        said = subprocess.run(
            [*command, "--thread", "--invalidate=0", "--output-format=json"], capture_output=True, text=True, timeout=50
        )
        expect("exit status of fio", said.returncode, 0)
        read = json.loads(said.stdout[said.stdout.index("{") :])["jobs"][0]["read"]
        expect("bytes that fio read", read["io_bytes"], size)
        took.append(size / read["bw_bytes"])
    VERSIONS["fio"] = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    return median(took)


@bench
def dd(n: int, size: int, cold: bool) -> float:
    """dd, in pieces of 1 MiB, to nowhere; its own word for the time."""
    program = shutil.which("dd")
    if not program:
        raise Missing("no dd on this machine")
    name = files.path(size)
    took = []
    for _ in range(n):
        files.prepare(name, cold)
        said = subprocess.run(
            [program, f"if={name}", "of=/dev/null", "bs=1M"],
            capture_output=True,
            text=True,
            timeout=50,
            env={**os.environ, "LC_ALL": "C"},
        )
        expect("exit status of dd", said.returncode, 0)
        copied = said.stderr.splitlines()[-1]
        expect("bytes that dd read", int(copied.split()[0]), size)
        took.append(float(copied.split(" copied, ")[1].split()[0]))
    return median(took)


@bench
def call(n: int, busy: str = "") -> float:
    a, b, c = (memory(4096, k) for k in range(3))
    with busy_thread(busy):
        return float(library().raw_call(n, a, b, c)) / n / 1e9


@bench
def vectorcall(n: int) -> float:
    """A built-in function with three positional arguments: the least that a launch through CPython can cost."""
    where, name, default = object(), "missing", None
    start = perf_counter()
    for _ in repeat(None, n):
        getattr(where, name, default)
    return (perf_counter() - start) / n


@bench
def clock(n: int) -> float:
    return float(library().raw_clock(n)) / n / 1e9


@bench
def signal_query(n: int) -> float:
    return float(library().raw_signal_query(n)) / n / 1e9


@bench
def signal_set(n: int) -> float:
    return float(library().raw_signal_set(n)) / n / 1e9


@bench
def attribute(n: int) -> float:
    """A getter of a built-in type: what reading an attribute costs in CPython."""
    view = memoryview(b"12345678")
    start = perf_counter()
    for _ in repeat(None, n):
        view.nbytes  # noqa: B018
    return (perf_counter() - start) / n


@bench
def method(n: int) -> float:
    """A method of a built-in type with one argument."""
    numbers = {7: 7}
    start = perf_counter()
    for _ in repeat(None, n):
        numbers.get(7)
    return (perf_counter() - start) / n


@bench
def wake(n: int, pause: float) -> float:
    return float(library().raw_wake(n, int(pause * 1e6))) / n / 1e9


@lru_cache
def vulkan() -> ctypes.CDLL:
    """Vulkan's own calls, with hcq's declarations of them, and hcq's kernel that adds 1."""
    native, path = SOURCES.parent.parent / "native", SCRATCH / "raw_vulkan.so"
    parts = [native / "vulkan" / f"{name}.cpp" for name in ("loader", "context", "memory", "pipeline")]
    command = ["g++", "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{native}"]
    sources = [SOURCES / "vulkan.cpp", *parts, native / "core" / "base.cpp"]
    if shutil.which("g++") is None:
        raise Missing("no C++ compiler")
    done = subprocess.run(
        [*command, *map(str, sources), "-ldl", "-o", str(path)], check=False, capture_output=True, timeout=300
    )
    if done.returncode:
        errors = [line for line in done.stderr.decode().splitlines() if "error" in line]
        raise RuntimeError(f"raw/vulkan.cpp does not compile: {' '.join(errors)}")
    from vulkan import bump

    lib = ctypes.CDLL(str(path))
    lib.raw_vulkan_launch.restype, lib.raw_vulkan_launch.argtypes = (
        ctypes.c_uint64,
        (ctypes.c_uint64, *[ctypes.c_int] * 2),
    )
    lib.raw_vulkan_open.restype = ctypes.c_uint64
    lib.raw_vulkan_open.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p)
    module = bump.source("spirv")
    if lib.raw_vulkan_open(module, len(module), b"bump"):
        raise Missing("no Vulkan device")
    return lib


@bench
def vulkan_calls(n: int, waits: bool, once: bool) -> float:
    lib = vulkan()
    before = lib.raw_vulkan_result()
    took = lib.raw_vulkan_launch(n, int(once), int(waits))
    expect("launches that ran", lib.raw_vulkan_result() - before, n)
    return float(took) / n / 1e9


@bench
def round_trip(n: int, spins: bool) -> float:
    return float(library().raw_round_trip(n, int(spins))) / n / 1e9


@bench
def memcpy(n: int, size: int, threads: int = 1) -> float:
    return float(library().raw_memcpy(n, memory(size, 0), memory(size, 1), size, threads)) / n / 1e9


@bench
def malloc(n: int, size: int) -> float:
    return float(library().raw_malloc(n, size)) / n / 1e9


@bench
def open_first(n: int) -> float:
    return float(library().raw_open(n)) / n / 1e9


@bench
def read_file(n: int) -> float:
    """Open, read and close a file of 16 KiB, about what a compiled kernel has."""
    path = SCRATCH / "kernel.bin"
    path.write_bytes(bytes(16384))
    took = library().raw_read_file(n, str(path).encode(), memory(16384, 0), 16384)
    if not took:
        raise RuntimeError("could not read the file")
    return float(took) / n / 1e9


@bench
def triad(n: int) -> float:
    size = 4 * kernels.STREAM_COUNT
    return float(library().raw_triad(n, *(memory(size, k) for k in range(3)), 3.0, kernels.STREAM_COUNT)) / n / 1e9


@bench
def operation(n: int, name: str) -> float:
    """The loop of one of hcq.ops."""
    which = ("fill", "add", "exp", "sum", "sum_columns").index(name)
    count = 4096 if name == "sum_columns" else kernels.STREAM_COUNT
    out, x, y = (memory(4 * kernels.STREAM_COUNT, k) for k in range(3))
    return float(library().raw_operation(n, which, out, x, y, count)) / n / 1e9


@bench
def reduce(n: int, tree: bool = False) -> float:
    x, sums = memory(4 * kernels.STREAM_COUNT, 0), memory(4 * kernels.BLOCKS, 1)
    run = library().raw_reduce_tree if tree else library().raw_reduce
    return float(run(n, sums, x, kernels.BLOCKS)) / n / 1e9


@bench
def compile_c(n: int, compiler: str, link: bool = True) -> float:
    """The bare compiler, started with posix_spawn: from a file to a file."""
    found = shutil.which(compiler)
    if not found:
        raise Missing(f"no {compiler} on this machine")
    source, result = SCRATCH / "bare.c", SCRATCH / "bare.out"
    flags = ["-O3", "-march=native", "-fPIC", *(["-shared"] if link else ["-c"])]
    total = 0.0
    for k in range(n):
        source.write_text(kernels.TEN_LINES_C.format(tag=1000 + k))
        start = perf_counter()
        child = os.posix_spawn(found, [found, *flags, str(source), "-o", str(result)], os.environ)
        _, status = os.waitpid(child, 0)
        total += perf_counter() - start
        expect("exit status of the compiler", status, 0)
    return total / n


@bench
def compile_ir(n: int) -> float:
    """llvmlite alone: parse, optimise at O3 for this processor, emit an object."""
    from llvmlite import binding as llvm

    machine = llvm_machine()
    total = 0.0
    for k in range(n):
        source = kernels.TEN_LINES_IR.format(tag=2000 + k)
        start = perf_counter()
        module = llvm.parse_assembly(source)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        machine.emit_object(module)
        total += perf_counter() - start
    return total / n


@lru_cache
def llvm_machine() -> object:
    import llvmlite
    from llvmlite import binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    VERSIONS["llvmlite"] = llvmlite.__version__
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )


@bench
def import_module(n: int, module: str) -> Answer:
    return fresh_median(n, "", f"import {module}")


@bench
def idle(n: int, seconds: float) -> Answer:
    return idle_share("", seconds)


if __name__ == "__main__":
    serve()
