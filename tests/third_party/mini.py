"""MINI: a device in pure Python. Its memory is the host's, its kernels are Python functions, its queues are threads.

docs/write-a-driver.md goes through it. `hcq.Device.register("MINI", MiniDevice)` makes it known.
"""

import ctypes
import functools
import hashlib
import itertools
import queue
import threading
import time
from decimal import Decimal
from typing import Any

from hcq import BufferOptions, Compiler, HCQAllocator, HCQBuffer, HCQCompiled, HCQProgram, HWComputeQueue, HWCopyQueue
from hcq.errors import CompileError, DeviceLost, InvalidProgram
from hcq.queues.signal import PythonSignal

TYPES = {
    **{f"i{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


class MiniSignal(PythonSignal):
    """Value and time-stamp (ns) are two words of memory, as they would be where hardware writes them."""

    def __init__(self, value: int = 0) -> None:
        self.words = (ctypes.c_uint64 * 2)()
        super().__init__(value)

    def _get_value(self) -> int:
        return self.words[0]

    def _set_value(self, value: int) -> None:
        self.words[0] = value

    def _get_timestamp(self) -> Decimal:
        return Decimal(self.words[1]) / 1000


class Words:
    """How the commands of both kinds of queue are written: a tuple each. The names are those of Worker's methods."""

    def _signal(self, signal, value):
        self.q.append(("signal", signal, value))

    def _wait(self, signal, value):
        self.q.append(("wait", signal, value))

    def _timestamp(self, signal):
        self.q.append(("timestamp", signal))

    def _submit(self, dev):
        dev.worker(self.lane_name).todo.put(list(self.q))


class MiniComputeQueue(Words, HWComputeQueue):
    def _memory_barrier(self):
        self.q.append(("barrier",))

    def _exec(self, prg, kernargs, global_size, local_size):
        self.q.append(("exec", prg, kernargs, global_size, local_size))


class MiniCopyQueue(Words, HWCopyQueue):
    def _copy(self, dest, src, nbytes):
        self.q.append(("copy", dest, src, nbytes))


class Worker:
    """One hardware queue: a thread that runs what is submitted, in order."""

    def __init__(self, dev: "MiniDevice", name: str) -> None:
        self.dev = dev
        self.todo: queue.SimpleQueue[list[tuple[Any, ...]] | None] = queue.SimpleQueue()
        threading.Thread(target=self.run, name=f"{dev.dname} {name}", daemon=True).start()

    def run(self) -> None:
        while (words := self.todo.get()) is not None and self.dev.lost is None:
            for index, (what, *args) in enumerate(words):
                try:
                    getattr(self, what)(*args)
                except DeviceLost as error:  # another device's failure: only this submit is dropped
                    self.dev.drop(error, [word[1:] for word in words[index:] if word[0] == "signal"])
                    break
                except BaseException as error:
                    self.dev.lose(error, f"{what} {args[0].name}" if what == "exec" else what)
                    return
            del words

    def signal(self, signal, value):
        signal.value = value

    def wait(self, signal, value):
        for nap in itertools.chain((0, 1e-5, 1e-4), itertools.repeat(1e-3)):
            if self.dev.is_reached(signal, value) or self.dev.lost is not None:
                return
            time.sleep(nap)

    def timestamp(self, signal):
        signal.words[1] = time.perf_counter_ns()

    def barrier(self):
        pass

    def copy(self, dest, src, nbytes):
        ctypes.memmove(dest, src, nbytes)

    def exec(self, prg, kernargs, groups, items):
        args = prg.arguments(kernargs)
        for z, y, x in itertools.product(*map(range, reversed(groups))):
            prg.function(((x, y, z), groups, items), *args)


class MiniProgram(HCQProgram):
    """A kernel is `def name(launch, out: "f32*", n: "i32")`, run for each group; launch is (group, groups, items)."""

    def __init__(self, dev, name, lib):
        if hashlib.sha256(lib[32:]).digest() != lib[:32]:
            raise InvalidProgram(f"this is no library of {dev.dname}, or a damaged one")
        functions = {}
        exec(lib[32:], functions)
        functions = {key: value for key, value in functions.items() if callable(value)}
        if name not in functions:
            raise InvalidProgram(f"no function {name!r} in the library: it has {', '.join(functions) or 'none'}")
        self.function = functions[name]
        types = list(self.function.__annotations__.values())
        self.pointers = [TYPES[kind[:-1]] for kind in types if kind.endswith("*")]
        self.values = [TYPES[kind] for kind in types if not kind.endswith("*")]
        self.buffer_count, self.value_types = len(self.pointers), [kind for kind in types if not kind.endswith("*")]
        kinds = [ctypes.c_uint64] * len(self.pointers) + self.values
        fields = [(f"a{index}", kind) for index, kind in enumerate(kinds)]
        self.layout = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
        super().__init__(dev, name, kernargs_alloc_size=ctypes.sizeof(self.layout))

    def arguments(self, kernargs):
        block = self.layout.from_buffer_copy(ctypes.string_at(kernargs, self.kernargs_alloc_size))
        given = [getattr(block, name) for name, _ in block._fields_]
        count = len(self.pointers)
        pointers = [ctypes.cast(at, ctypes.POINTER(kind)) for at, kind in zip(given, self.pointers, strict=False)]
        return pointers + given[count:]


class MiniCompiler(Compiler):
    def compile(self, src):
        try:
            compile(src, "<kernel>", "exec")
        except SyntaxError as error:
            raise CompileError(
                "the kernel does not compile", log=f"line {error.lineno}: {error.msg}", source=src
            ) from error
        code = src.encode() if isinstance(src, str) else src
        return hashlib.sha256(code).digest() + code


class MiniBuffer(HCQBuffer):
    memory: Any  # the ctypes buffer that va_addr points into


class MiniAllocator(HCQAllocator):
    host_access = True

    def _alloc(self, size: int, options: BufferOptions) -> MiniBuffer:
        memory = ctypes.create_string_buffer(size + 63)
        buf = MiniBuffer(-(-ctypes.addressof(memory) // 64) * 64, size)
        buf.memory = self.device.memory[buf.va_addr] = memory
        return buf

    def _free(self, opaque: MiniBuffer, options: BufferOptions) -> None:
        self.device.memory.pop(opaque.va_addr, None)

    def as_buffer(self, buf: MiniBuffer) -> memoryview:
        start = buf.va_addr - ctypes.addressof(buf.memory)
        return memoryview((ctypes.c_ubyte * buf.size).from_buffer(buf.memory, start)).cast("B")

    def offset(self, buf: MiniBuffer, size: int, offset: int) -> MiniBuffer:
        view = MiniBuffer(buf.va_addr + offset, size)
        view.memory = buf.memory
        return view


class MiniDevice(HCQCompiled):
    def __init__(self, device: str) -> None:
        self.memory: dict[int, Any] = {}
        self.workers: dict[str, Worker] = {}
        runtime, signals = functools.partial(MiniProgram, self), (MiniSignal(), MiniSignal())
        queues = MiniComputeQueue, MiniCopyQueue
        super().__init__(
            device, MiniAllocator(self), None, MiniCompiler("mini-1"), runtime, MiniSignal, *queues, signals
        )

    def worker(self, name: str) -> Worker:
        if name not in self.workers:  # one thread at a time comes here for a queue
            self.workers[name] = Worker(self, name)
        return self.workers[name]

    def reaches(self, buf) -> bool:
        return buf.device.partition(":")[0] == self.dname.partition(":")[0]  # each other's: all is the host's

    def _close(self) -> None:
        super()._close()
        for worker in self.workers.values():
            worker.todo.put(None)
        self.memory.clear()
