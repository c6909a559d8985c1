"""What is measured: one Row for each line of the tables, with its budget, the peers on the same work, and the raw cost.

How each is measured is in workers/; how rounds interleave is in run.py.
"""

from __future__ import annotations

from typing import Any

from benchmarks import cudacpu, drivers, operations
from benchmarks.row import KIB, MIB, STATED, Budget, Entry, Row


def peer_entries(bench: str, *peers: str, **parameters: Any) -> tuple[Entry, ...]:
    return tuple(Entry(peer, bench, parameters=parameters) for peer in peers)


def us(text: float) -> float:
    return text * 1e-6


CALL = Entry("raw", "call", "C call through a pointer")
VECTORCALL = Entry("raw", "vectorcall", "built-in with 3 arguments")
NUMPY_CALL = Entry("numpy", "launch", "np.add, one element")
NUMBA_CALL = Entry("numba", "launch", "njit call")
FUTEX = Entry("raw", "round_trip", "2 hand-overs, futex", {"spins": False})
SPIN = Entry("raw", "round_trip", "2 hand-overs, spinning", {"spins": True})


def waits(row: str, title: str, budget: Budget, busy: str = "", busy_core: bool = False, note: str = "") -> Row:
    parameters = {"busy": busy} if busy else {}
    most = 300 if busy else 200_000
    return Row(
        row,
        "launch",
        title,
        "us",
        (
            Entry("hcq", "launch_synchronize", "", parameters),
            Entry("hcq", "launch_wait", "wait=True", parameters),
            Entry("tg09", "launch_wait", "wait=True", parameters),
            Entry("tg14", "launch_wait", "wait=True", parameters),
            Entry("tg14", "launch_synchronize", "", parameters),
            Entry("pocl", "launch_wait", "event.wait", parameters),
            Entry("pocl", "launch_synchronize", "finish", parameters),
            Entry("numba", "launch", "njit call", parameters),
            FUTEX,
            # two spinning threads and a busy process on two cores would measure the scheduler only
            *(() if busy_core else (SPIN,)),
        ),
        budget,
        most=most,
        busy_core=busy_core,
        note=note,
    )


def copies() -> tuple[Row, ...]:
    rows: list[Row] = []
    for size, name in ((4 * KIB, "4 KiB"), (MIB, "1 MiB"), (64 * MIB, "64 MiB"), (256 * MIB, "256 MiB")):
        if size == 4 * KIB:
            budget = Budget("1 us", us(1))
        elif size == MIB:
            budget = Budget("0.95 memcpy", 1 / 0.95, "memcpy, 1 thread")
        else:
            budget = Budget("1.5 x memcpy, 1 thread", 1 / 1.5, "memcpy, 1 thread")
        threads = (1, 2) if size >= MIB else (1,)
        for way in ("copyin", "copyout"):
            rows.append(
                Row(
                    f"copy.{way}.{name.replace(' ', '')}",
                    "copy",
                    f"{way} {name}",
                    "us" if size == 4 * KIB else "GB/s",
                    (
                        *peer_entries(way, "hcq", "tg09", "tg14", "pocl", size=size),
                        Entry("numpy", "copy", "copyto", {"size": size}),
                        *(
                            Entry("raw", "memcpy", f"memcpy, {t} thread{'s' * (t > 1)}", {"size": size, "threads": t})
                            for t in threads
                        ),
                    ),
                    budget,
                    size=size,
                )
            )
    size = 256 * MIB
    rows.append(
        Row(
            "copy.device",
            "copy",
            "device to device 256 MiB",
            "GB/s",
            (
                *peer_entries("device_copy", "hcq", "tg14", "pocl", size=size),
                Entry("numpy", "copy", "copyto", {"size": size}),
                Entry("raw", "memcpy", "memcpy, 1 thread", {"size": size, "threads": 1}),
                Entry("raw", "memcpy", "memcpy, 2 threads", {"size": size, "threads": 2}),
            ),
            Budget("1.5 x memcpy, 1 thread", 1 / 1.5, "memcpy, 1 thread"),
            size=size,
        )
    )
    return tuple(rows)


def raw_reads(size: int, cold: bool) -> tuple[Entry, ...]:
    how = {"size": size, "cold": cold}
    return (
        Entry("raw", "pread", "pread, 1 thread", how),
        Entry("raw", "dd", "dd", how),
        Entry("raw", "fio", "fio, read", how),
        *((Entry("raw", "fio", "fio, io_uring, direct, 8 deep", {**how, "depth": 8}),) if cold else ()),
    )


def files() -> tuple[Row, ...]:
    size = 1 << 30
    return tuple(
        Row(
            f"disk.{state}",
            "disk",
            f"a file of 1 GiB to the device, {state}",
            "GB/s",
            (
                *peer_entries("read_file", "hcq", "tg14", size=size, cold=state == "cold"),
                Entry("numpy", "read_file", "fromfile", {"size": size, "cold": state == "cold"}),
                *raw_reads(size, state == "cold"),
            ),
            Budget("0.9 of the raw read", 1 / 0.9, "pread, 1 thread"),
            count=1,
            size=size,
            heavy=True,
            note=note,
        )
        for state, note in (
            ("cold", "Before each read the file is taken out of the page cache; the first 144 MiB try three ways."),
            ("warm", ""),
        )
    )


def loads() -> tuple[Row, ...]:
    one = {"shards": 1, "tensors": 64, "size": 16 * MIB}
    many = {"shards": 100, "tensors": 2, "size": 5 * MIB + 124_000}
    small = {"shards": 1, "tensors": 10_000, "size": 4096}

    def row(id: str, title: str, bench: str, sizes: dict[str, int], unit: str = "GB/s", **more: Any) -> Row:
        cold = {"cold": True} if more.pop("cold", False) else {}
        size = sizes["shards"] * sizes["tensors"] * sizes["size"]
        peers = ("safetensors", "torch")
        if unit != "ms":  # a small tensor takes tinygrad 20 ms
            peers += ("tg14",)
        entries = peer_entries(bench, "hcq", *peers, **sizes, **cold)
        if unit == "GB/s":
            raw = {"size": size // MIB * MIB, "cold": bool(cold)}
            entries += (Entry("numpy", "read_file", "fromfile", raw), *raw_reads(**raw))
        return Row(id, "load", title, unit, entries, count=1, size=size, rounds=3, **more)

    budget = Budget("0.9 of the raw read", 1 / 0.9, "pread, 1 thread")
    return (
        row(
            *("load.file", "1 GiB of safetensors in one file, warm", "load_tensors", one),
            budget=budget,
            heavy=True,
            note="The loader for PyTorch maps the file and reads nothing: its tensors are cloned, here and below.",
        ),
        row("load.cold", "the same, cold", "load_tensors", one, budget=budget, heavy=True, cold=True),
        row("load.shards", "the same in 100 files, warm", "load_tensors", many, budget=budget, heavy=True),
        row(
            *("load.first", "1 GiB in one file, the first load of a process", "load_first", one),
            budget=STATED,
            heavy=True,
            note="Into memory that the system has to find first.",
        ),
        row("load.small", "10,000 tensors of 4 KiB", "load_tensors", small, unit="ms", budget=STATED),
        row(
            *("load.peak", "1 GiB in one file: memory beside the tensors, at most", "load_peak", one, "MiB"),
            budget=Budget("64 MiB", 64),
            heavy=True,
        ),
    )


def bound() -> tuple[Row, ...]:
    rows = [
        Row(
            f"bound.submit.{n}",
            "bound",
            f"submit of a bound queue, {n} command{'s' * (n > 1)}, host",
            "us",
            (Entry("hcq", "bound_submit", "", {"commands": n}), VECTORCALL),
            Budget("5 us, any length", us(5)),
            most=4000,
            note="Up to four under way; finishing them is not counted.",
        )
        for n in (1, 100, 1000)
    ]
    rows.append(
        Row(
            "bound.command",
            "bound",
            "bound queue of 1000, submit to finish, a command",
            "us",
            (Entry("hcq", "bound_command", "", {"commands": 1000}), Entry("raw", "call", "C call through a pointer")),
            Budget("0.03 us above the kernel", us(0.03)),
            most=400,
        )
    )
    rows.append(
        Row(
            "bound.update",
            "bound",
            "one update_exec and its share of the submit",
            "us",
            (
                Entry("hcq", "bound_update", "100 of 1000", {"commands": 1000, "updates": 100}),
                Entry("raw", "vectorcall", "built-in with 3 arguments"),
            ),
            None,
            most=100,
            note="0.02 us an argument is the budget of graph replay, where one call changes them all.",
        )
    )
    return tuple(rows)


def graphs() -> tuple[Row, ...]:
    rows = [
        Row(
            f"graph.replay.{nodes}",
            "graph",
            f"unchanged replay of {nodes} launches, host",
            "us",
            (Entry("hcq", "graph_replay", "", {"nodes": nodes}), VECTORCALL),
            Budget("5 us, any length", us(5)),
            most=4000 if nodes < 10_000 else 200,
            note="Up to four under way; finishing them is not counted.",
        )
        for nodes in (10, 100, 1000, 10_000)
    ]
    rows.append(
        Row(
            "graph.change",
            "graph",
            "a new input used by 1000 launches, host, an argument",
            "ns",
            (Entry("hcq", "graph_change", "", {"nodes": 1000}), CALL),
            Budget("0.02 us", us(0.02)),
            most=400,
            note="Less an unchanged replay; four under way.",
        )
    )
    rows += [
        Row(
            f"graph.{form}.{what}.{count}",
            "graph",
            f"{'a list' if form == 'list' else 'replay'} with {count} new {what}{'s' * (count > 1)}, host, above none",
            "us",
            (Entry("hcq", "graph_changes", "", {"form": form, "what": what, "count": count}), CALL),
            Budget("1 us" if count == 1 else "3 us", us(1 if count == 1 else 3)),
            most=2000,
            note="Of 5 launches that take all of them; four under way.",
        )
        for form, what in (
            ("replay", "input"),
            ("replay", "value"),
            ("replay", "size"),
            ("list", "input"),
            ("list", "value"),
        )
        for count in ((1,) if what == "size" else (1, 10))
    ]
    rows.append(
        Row(
            "graph.node",
            "graph",
            "replay of 1000 launches to finish, a launch",
            "ns",
            (Entry("hcq", "graph_node", "", {"nodes": 1000}), CALL),
            Budget("0.03 us above the kernel", us(0.03)),
            most=400,
        )
    )
    rows.append(
        Row(
            "graph.build",
            "graph",
            "recording and building 10,000 launches",
            "ms",
            (Entry("hcq", "graph_build", "", {"nodes": 10_000}),),
            Budget("1 s", 1.0),
            count=1,
        )
    )
    return tuple(rows)


def client(device: str) -> tuple[Row, ...]:
    """An unmodified tinygrad 0.9.2, alone and on hcq."""
    alone = Budget("never slower than tinygrad alone", 1.0, "alone")
    given = {"device": device}

    def entries(bench: str) -> tuple[Entry, ...]:
        stand_in = (Entry("tghcq", bench, "AMD, CLANG's kernels in groups", {"device": "AMD"}),)
        return (
            Entry("tghcq", bench, device, given),
            *(stand_in if device == "CLANG" else ()),
            Entry("tg09", bench, "alone", given),
        )

    def row(bench: str, title: str, unit: str, budget: Budget = alone, **more: Any) -> Row:
        name = f"client.{bench}.{device.lower()}"
        return Row(name, "client", f"{title}, {device}", unit, entries(bench), budget, heavy=True, **more)

    return (
        row("replay", "tinygrad's JIT of 100 kernels, replayed, a kernel", "us", most=500),
        row("eager", "tinygrad, a tensor of one kernel", "us", most=1000),
        row("first", "tinygrad's first result in a process, nothing cached", "ms", count=1, rounds=3),
        row(
            "memory", "tinygrad with 200 tensors and a JIT, nothing cached: memory of its own", "MiB", count=1, rounds=3
        ),
        row("resident", "the same: resident at most, with pages of files", "MiB", STATED, count=1, rounds=3),
    )


ROWS: tuple[Row, ...] = (
    Row(
        "launch.queued",
        "launch",
        "prg(a, b, c), queued, until the last has finished",
        "us",
        (
            Entry("hcq", "launch", "CLANG"),
            Entry("hcq", "launch", "LLVM", {"device": "LLVM"}),
            Entry("tg09", "launch", "not queued", limit=200_000),
            Entry("tg14", "launch", "", limit=100_000),
            Entry("pocl", "launch", "", limit=50_000),
            NUMBA_CALL,
            NUMPY_CALL,
            VECTORCALL,
            CALL,
        ),
        Budget("0.8 us", us(0.8)),
        count=1_000_000,
        quick_count=200_000,
        note="Every launch adds one to a counter, which is checked.",
    ),
    Row(
        "opencl.call",
        "launch",
        "OpenCL on PoCL: the call that launches",
        "us",
        (
            Entry("hcq", "launch_call", "GPU", {"device": "GPU"}),
            Entry("pocl", "launch_call", "kernel(queue, ...)"),
            Entry("pocl", "launch_call", "enqueue, arguments set", {"prepared": True}),
        ),
        Budget("no more than pyopencl's call", 1.0, "kernel(queue, ...)"),
        count=3200,
        note="32 calls in a row, then a wait that is not timed.",
    ),
    Row(
        "opencl.wait",
        "launch",
        "OpenCL on PoCL: launch and wait",
        "us",
        (
            Entry("hcq", "launch_synchronize", "GPU", {"device": "GPU"}),
            Entry("hcq", "launch_wait", "GPU, wait=True", {"device": "GPU"}),
            Entry("pocl", "launch_synchronize", "finish"),
            Entry("pocl", "launch_wait", "event.wait"),
        ),
        STATED,
        count=2000,
        note="PoCL wakes a thread of its own for each, some 25 us. A thread of ours looks for 80 us, then sleeps.",
    ),
    Row(
        "launch.wake",
        "launch",
        "prg(a, b, c) that wakes a sleeping processor",
        "us",
        (
            *peer_entries("launch_wake", "hcq", "tg14", "pocl", pause=0.02),
            Entry("raw", "wake", "futex wake", {"pause": 0.02}),
        ),
        Budget("6 us", us(6)),
        count=15,
        quick_count=7,
        note="Median of single calls, each after 20 ms of rest.",
    ),
    Row(
        "launch.prepared",
        "launch",
        "prepared launch, until the last has finished",
        "us",
        (Entry("hcq", "prepared"), Entry("pocl", "prepared", "", limit=50_000), NUMBA_CALL, VECTORCALL, CALL),
        Budget("0.4 us", us(0.4)),
        count=1_000_000,
        quick_count=200_000,
    ),
    Row(
        "kernel.launch",
        "launch",
        "launch of a portable kernel with (a, b, c), queued, until the last has finished",
        "us",
        (
            Entry("hcq", "kernel_launch", "LLVM"),
            Entry("hcq", "launch", "its prg(a, b, c), LLVM", {"device": "LLVM"}),
            NUMBA_CALL,
            VECTORCALL,
        ),
        Budget("0.8 us", us(0.8)),
        count=1_000_000,
        quick_count=200_000,
    ),
    Row(
        "launch.profiled",
        "launch",
        "50,000 queued launches with a profile on, against without",
        "x",
        (Entry("hcq", "profiled"), Entry("hcq", "profiled", "LLVM", {"device": "LLVM"})),
        Budget("1.1 x", 1.1),
        count=50_000,
    ),
    Row(
        "launch.checked",
        "launch",
        "prg(a, b, c), queued, with the checks on",
        "us",
        (Entry("hcq", "checked"), Entry("hcq", "checked", "LLVM", {"device": "LLVM"})),
        Budget("stated", float("inf")),
        count=2_000,
        note="The checks are Python, for a run that looks for mistakes. No peer here checks order between queues.",
    ),
    waits("wait.idle", "launch and wait", Budget("1.3 us", us(1.3))),
    waits("wait.busy_core", "launch and wait, other core busy", Budget("2 us", us(2)), busy_core=True),
    waits(
        "wait.busy_thread",
        "launch and wait, second Python thread busy",
        STATED,
        busy="thread",
        note="A thread that gives the interpreter lock away waits 5 ms to have it back.",
    ),
    Row(
        "signal.query",
        "signal",
        "signal: query",
        "us",
        (
            Entry("hcq", "signal_query"),
            Entry("tg14", "signal_query"),
            Entry("pocl", "signal_query", "event status"),
            Entry("raw", "attribute", "attribute of a built-in"),
            Entry("raw", "signal_query", "C atomic load"),
        ),
        Budget("0.1 us", us(0.1)),
        most=200_000,
    ),
    Row(
        "signal.set",
        "signal",
        "signal: set",
        "us",
        (
            Entry("hcq", "signal_set"),
            Entry("tg14", "signal_set"),
            Entry("raw", "method", "method of a built-in"),
            Entry("raw", "signal_set", "C atomic store"),
        ),
        Budget("0.1 us", us(0.1)),
        most=200_000,
    ),
    Row(
        "signal.wait",
        "signal",
        "signal: wait already satisfied",
        "us",
        (
            Entry("hcq", "signal_wait"),
            Entry("tg14", "signal_wait"),
            Entry("pocl", "signal_wait", "event.wait"),
            Entry("raw", "method", "method of a built-in"),
        ),
        Budget("0.1 us", us(0.1)),
        most=200_000,
    ),
    *bound(),
    *graphs(),
    Row(
        "buffer.cached",
        "buffer",
        "Buffer of 4 KiB from the cache, create and drop",
        "us",
        (
            *peer_entries("buffer", "hcq", "tg09", "tg14", "pocl", size=4096),
            Entry("pocl", "buffer_pool", "memory pool", {"size": 4096}),
            Entry("numpy", "buffer", "np.empty", {"size": 4096}),
            Entry("raw", "malloc", "malloc, touch, free", {"size": 4096}),
        ),
        Budget("0.6 us", us(0.6)),
        most=100_000,
    ),
    Row(
        "buffer.view",
        "buffer",
        "view, create and drop",
        "us",
        (
            *peer_entries("view", "hcq", "tg09", "tg14"),
            Entry("pocl", "view", "sub-buffer"),
            Entry("numpy", "view", "slice"),
            VECTORCALL,
        ),
        Budget("0.4 us", us(0.4)),
        most=100_000,
    ),
    *copies(),
    *files(),
    *loads(),
    Row(
        "compile.llvm",
        "compile",
        "compile a ten-line kernel in process (LLVM)",
        "ms",
        (
            Entry("hcq", "compile", "", {"device": "LLVM"}),
            Entry("tg09", "compile", "LLVM, without optimising", {"device": "LLVM"}),
            Entry("tg09", "compile_ir", "its llvmlite alone, at O3"),
            Entry("tg14", "compile", "LLVM", {"device": "LLVM"}),
            Entry("pocl", "compile", "", {"device": "LLVM"}),
            Entry("numba", "compile", "njit", {"device": "LLVM"}),
            Entry("raw", "compile_ir", "llvmlite alone"),
        ),
        Budget("15 ms", 0.015),
        most=5,
    ),
    Row(
        "compile.c",
        "compile",
        "compile the same by C compiler (CLANG)",
        "ms",
        (
            Entry("hcq", "compile", "", {"device": "CLANG"}),
            Entry("tg09", "compile", "CLANG", {"device": "CLANG"}),
            Entry("tg14", "compile", "CPU", {"device": "CPU"}),
            Entry("raw", "compile_c", "clang to .so", {"compiler": "clang"}),
            Entry("raw", "compile_c", "clang to .o", {"compiler": "clang", "link": False}),
            Entry("raw", "compile_c", "gcc to .so", {"compiler": "gcc"}),
        ),
        Budget("1.2 x the compiler", 1.2, "clang to .so"),
        most=1,
    ),
    Row(
        "kernel.compile",
        "compile",
        "a ten-line portable kernel, from Python's text to the end of its first launch (LLVM)",
        "ms",
        (
            Entry("hcq", "kernel_compile", "", {"device": "LLVM"}),
            Entry("numba", "compile", "njit", {"device": "LLVM"}),
            Entry("raw", "compile_ir", "llvmlite alone"),
        ),
        Budget("30 ms", 0.03),
        most=5,
    ),
    Row(
        "kernel.cached",
        "compile",
        "the launch of one that is compiled, looked at by Python",
        "us",
        (Entry("hcq", "kernel_cached", "LLVM", {"device": "LLVM"}), Entry("tg14", "cache_again")),
        Budget("50 us", us(50)),
        most=5000,
    ),
    Row(
        "cache.first",
        "compile",
        "cache hit, first in a process",
        "us",
        (*peer_entries("cache_first", "hcq", "tg09", "tg14"), Entry("raw", "read_file", "read a 16 KiB file, warm")),
        Budget("200 us", us(200)),
        count=1,
    ),
    Row(
        "cache.again",
        "compile",
        "cache hit, again",
        "us",
        (*peer_entries("cache_again", "hcq", "tg09", "tg14"), Entry("raw", "read_file", "read a 16 KiB file, warm")),
        Budget("10 us", us(10)),
        most=5000,
    ),
    Row(
        "start.import",
        "start",
        "import",
        "ms",
        (
            *peer_entries("import_module", "hcq", "tg09", "tg14", "pocl", "numba", "numpy"),
            Entry("raw", "import_module", "import logging, ctypes", {"module": "logging, ctypes"}),
        ),
        Budget("50 ms", 0.05),
        count=1,
    ),
    Row(
        "start.open",
        "start",
        "first open of the CPU device",
        "ms",
        (
            Entry("hcq", "open_first", "CLANG"),
            Entry("hcq", "open_first", "LLVM", {"device": "LLVM"}),
            *peer_entries("open_first", "tg09", "tg14", "pocl"),
            Entry("raw", "open_first", "2 MiB touched, a thread"),
        ),
        Budget("20 ms", 0.02),
        count=1,
    ),
    Row(
        "kernel.triad.clang",
        "kernel",
        "triad, 3 x 64 MiB, CLANG",
        "GB/s",
        (
            Entry("hcq", "triad", "CLANG", {"device": "CLANG"}),
            Entry("tg09", "triad", "one thread"),
            Entry("tg14", "triad", "one thread"),
            *peer_entries("triad", "pocl", "numba"),
            Entry("numpy", "triad", "two passes"),
            Entry("raw", "triad", "C with OpenMP"),
        ),
        Budget("0.9 of C with OpenMP", 1 / 0.9, "C with OpenMP"),
        size=3 * 64 * MIB,
        most=8,
    ),
    Row(
        "kernel.triad.llvm",
        "kernel",
        "triad, 3 x 64 MiB, LLVM",
        "GB/s",
        (Entry("hcq", "triad", "LLVM", {"device": "LLVM"}), Entry("raw", "triad", "C with OpenMP")),
        Budget("0.9 of C with OpenMP", 1 / 0.9, "C with OpenMP"),
        size=3 * 64 * MIB,
        most=8,
    ),
    Row(
        "kernel.reduce.llvm",
        "kernel",
        "sums of blocks of 256, local memory and barriers, LLVM",
        "GB/s",
        (
            Entry("hcq", "reduce", "LLVM", {"device": "LLVM"}),
            *peer_entries("reduce", "pocl", "numba"),
            Entry("numpy", "reduce", "add.reduce"),
            Entry("raw", "reduce", "C with OpenMP"),
            Entry("raw", "reduce", "C with OpenMP, as a tree", {"tree": True}),
        ),
        Budget("0.9 of C with OpenMP", 1 / 0.9, "C with OpenMP"),
        size=64 * MIB,
        most=8,
    ),
    Row(
        "kernel.reduce.clang",
        "kernel",
        "the same, CLANG (a fiber for each item)",
        "GB/s",
        (Entry("hcq", "reduce", "CLANG", {"device": "CLANG"}), Entry("raw", "reduce", "C with OpenMP")),
        STATED,
        size=64 * MIB,
        count=1,
        rounds=2,
    ),
    Row(
        "kernel.triad.portable",
        "kernel",
        "triad, 3 x 64 MiB, a portable kernel",
        "GB/s",
        (
            Entry("hcq", "triad", "LLVM", {"device": "LLVM", "is_portable": True}),
            Entry("raw", "triad", "C with OpenMP"),
        ),
        Budget("0.9 of C with OpenMP", 1 / 0.9, "C with OpenMP"),
        size=3 * 64 * MIB,
        most=8,
    ),
    Row(
        "kernel.reduce.portable",
        "kernel",
        "sums of blocks of 256, local memory and barriers, a portable kernel",
        "GB/s",
        (
            Entry("hcq", "reduce", "LLVM", {"device": "LLVM", "is_portable": True}),
            Entry("raw", "reduce", "C with OpenMP"),
            Entry("raw", "reduce", "C with OpenMP, as a tree", {"tree": True}),
        ),
        Budget("0.9 of C with OpenMP", 1 / 0.9, "C with OpenMP"),
        size=64 * MIB,
        most=8,
    ),
    Row(
        "idle",
        "idle",
        "CPU use of an idle process with open devices",
        "%",
        (*peer_entries("idle", "hcq", "tg09", "tg14", "pocl", seconds=2.0), Entry("raw", "idle", "", {"seconds": 2.0})),
        Budget("0.1 %", 0.001),
        count=1,
        rounds=1,
        heavy=True,
    ),
    Row(
        "size.launches",
        "size",
        "10^6 launches: last tenth against first",
        "x",
        (
            Entry("hcq", "flat"),
            Entry("tg09", "flat", "", limit=200_000),
            Entry("tg14", "flat", "", limit=200_000),
            Entry("pocl", "flat", "", limit=100_000),
        ),
        Budget("1.3 x", 1.3),
        count=1_000_000,
        quick_count=200_000,
        rounds=3,
    ),
    Row(
        "size.buffers",
        "size",
        "10^5 live buffers of 4 KiB: memory mappings added",
        "plain",
        (
            Entry("hcq", "many_buffers"),
            *(Entry(peer, "many_buffers", once=True) for peer in ("tg09", "tg14", "pocl", "numpy")),
        ),
        Budget("no mapping per buffer", 1000),
        count=100_000,
        rounds=2,
        heavy=True,
    ),
    Row(
        "size.devices",
        "size",
        "64 more devices opened",
        "ms",
        (
            Entry("hcq", "many_devices"),
            *(Entry(peer, "many_devices", once=True) for peer in ("tg09", "tg14", "pocl")),
        ),
        Budget("50 ms", 0.05),
        count=64,
        rounds=3,
        heavy=True,
    ),
    *operations.ROWS,
    *drivers.ROWS,
    *cudacpu.ROWS,
    *client("CLANG"),
    *client("LLVM"),
    Row(
        "raw",
        "raw",
        "the machine itself: reading the clock; call; hand-over",
        "us",
        (Entry("raw", "clock", "clock_gettime"), CALL, VECTORCALL, FUTEX, SPIN),
        None,
        most=100_000,
    ),
)

# Budgets for what does not exist yet.
NOT_BEGUN: tuple[tuple[str, str], ...] = ()
