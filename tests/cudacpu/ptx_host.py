"""Runs translated PTX in this process, without libcuda: MCJIT, and an executor in Python that is slow but plain.

It is the reading of abi.hpp that the translation is tested against; the native executor has tests of its own.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import numpy as np

from hcq.cudacpu import lower, ptx
from hcq.cudacpu.abi import Op
from hcq.drivers.cpu import llvm_host
from hcq.drivers.cpu.llvm_module import Lowering

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"  # of a module, in three lines

u8p = ctypes.POINTER(ctypes.c_uint8)


class Grid(ctypes.Structure):
    _fields_ = [
        ("params", ctypes.c_void_p),
        ("ntid", ctypes.c_uint32 * 3),
        ("nctaid", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("id", ctypes.c_uint64),
        ("failed", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("workspace", ctypes.c_uint64),
    ]


class Block(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.POINTER(Grid)),
        ("shared", ctypes.c_void_p),
        ("ctaid", ctypes.c_uint32 * 3),
        ("smid", ctypes.c_uint32),
        ("local", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
    ]


class Thread(ctypes.Structure):
    _fields_ = [
        ("block", ctypes.POINTER(Block)),
        ("local", ctypes.c_void_p),
        ("tid", ctypes.c_uint32 * 3),
        ("linear", ctypes.c_uint32),
        ("op", ctypes.c_uint32),
        ("mask", ctypes.c_uint32),
        ("a", ctypes.c_uint64 * 4),
        ("r", ctypes.c_uint64 * 2),
        ("line", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("frame", ctypes.c_void_p),
    ]


PRINTED: list[tuple[bytes, int]] = []
FAILED: list[tuple[int, int, int]] = []
ASSERTED: list[tuple[bytes, int]] = []
_frames: list[ctypes.Array] = []


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
def _frame(thread, size):
    _frames.append(ctypes.create_string_buffer(size + 64))
    return (ctypes.addressof(_frames[-1]) + 63) & ~63


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
def _printf(block, text, arguments):
    PRINTED.append((text, ctypes.cast(arguments, ctypes.POINTER(ctypes.c_int32))[0] if arguments else 0))
    return 1


@ctypes.CFUNCTYPE(ctypes.c_uint64)
def _clock():
    import time

    return time.monotonic_ns()


@cache
def llvm():
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    libc = ctypes.CDLL(None)
    for name, function in {
        "hcq_cuda_frame": _frame,
        "hcq_cuda_printf": _printf,
        "hcq_cuda_clock": _clock,
        "hcq_cuda_malloc": libc.malloc,
        "hcq_cuda_free": libc.free,
        "hcq_cuda_fail": libc.abort,  # nothing here leaves a block
        "hcq_cuda_assert": libc.abort,
    }.items():
        binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return binding


def machine():
    """A new one, since an engine takes the one that it is given."""
    binding = llvm()
    return binding.Target.from_default_triple().create_target_machine(
        opt=2,
        jit=True,
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
    )


def optimised(text: str, level: int = 3):
    """The LLVM module of a text after the default pipeline."""
    binding = llvm()
    module = binding.parse_assembly(text)
    target = machine()
    module.triple, module.data_layout = target.triple, str(target.target_data)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = level > 1
    builder = binding.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return module


class Loaded:
    """A PTX module, compiled."""

    def __init__(self, text: str | ptx.Module, level: int = 1, options: lower.Options | None = None) -> None:
        self.translated = lower.translate(
            ptx.parse(text) if isinstance(text, str) else text, options or lower.Options()
        )
        self.module = optimised(self.translated.llvm_ir, level)
        self.engine = llvm().create_mcjit_compiler(self.module, machine())
        self.scratch: dict[str, int] = {}
        if self.translated.regions:
            with llvm_host.LOCK, llvm_host.Session(self.translated.regions) as session:
                lowering = Lowering(session)
                self.regions = optimised(str(lowering.run()), level)
                self.scratch = {f.name: f.scratch_group + f.scratch_item * 1024 for f in lowering.functions}
            self.engine.add_module(self.regions)
        self.engine.finalize_object()
        self.kernels = {each.name: each for each in self.translated.kernels}

    def address(self, name: str) -> int:
        """Where a global variable is."""
        (found,) = (each for each in self.translated.globals if each.name == name)
        return self.engine.get_global_value_address(found.symbol)

    def launch(self, name: str, *arguments, grid=(1, 1, 1), block=(1, 1, 1), dynamic: int = 0) -> None:
        """Run a kernel to its end. Arguments are NumPy scalars, bytes, or arrays (whose address is given)."""
        kernel = self.kernels[name]
        assert len(arguments) == len(kernel.params)
        params = np.zeros(kernel.param_bytes + 64, np.uint8)
        for (offset, size, _), value in zip(kernel.params, arguments, strict=True):
            if isinstance(value, np.ndarray):
                raw = struct.pack("<Q", value.ctypes.data)
            else:
                raw = value if isinstance(value, bytes) else value.tobytes()
            assert len(raw) == size, f"{name}: a parameter has {size} bytes, {value!r} {len(raw)}"
            params[offset : offset + size] = np.frombuffer(raw, np.uint8)
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        threads = block[0] * block[1] * block[2]
        shared = np.zeros(kernel.shared + dynamic + 64, np.uint8)
        local = np.zeros(kernel.local * threads + 64, np.uint8)
        made = Grid(params.ctypes.data, block, grid, dynamic, kernel.shared + dynamic, 7, 0, kernel.local, None, 0)
        entry = self.engine.get_function_address(kernel.symbol)
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    one = Block(
                        ctypes.pointer(made), _aligned(shared), (x, y, z), 3, _aligned(local), None,
                    )  # fmt: skip
                    if kernel.kind == "regions":
                        _run_group(entry, one, grid, block, self.scratch[kernel.symbol])
                    elif kernel.kind == "loop":
                        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)(ctypes.addressof(one))
                    else:
                        _run_threads(entry, one, block, kernel.local)


def _aligned(array: np.ndarray) -> int:
    return (array.ctypes.data + 63) & ~63


def _run_group(entry: int, block: Block, grid, shape, scratch: int) -> None:
    """As BlockRun::run_group does: ids and scratch memory, here full of what must not matter."""
    room = np.full(scratch + 128, 0x55, np.uint8)
    room[64:].view(np.uint32)[: scratch // 4] = np.arange(scratch // 4) % 5
    ids = np.array([*block.ctaid, *grid, *shape, 0, 0, 0], np.uint32)
    ids[10:].view(np.uint64)[0] = _aligned(room)
    arguments = ctypes.c_void_p(ctypes.addressof(block))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(entry)(ctypes.addressof(arguments), ids.ctypes.data)


# -- threads: the executor ----------------------------------------------------------------------------------------


def _run_threads(entry: int, block: Block, shape, local: int) -> None:
    ramp = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(entry)
    threads = []
    for linear in range(shape[0] * shape[1] * shape[2]):
        tid = (linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1]))
        thread = Thread(ctypes.pointer(block), block.local + linear * local, tid, linear)
        thread.frame = ramp(ctypes.addressof(thread))
        threads.append(thread)
    while any(thread.op != Op.exited for thread in threads):
        ready = _complete([thread for thread in threads if thread.op != Op.exited], threads)
        assert ready, "stuck: " + ", ".join(f"{t.linear} at {Op(t.op).name} line {t.line}" for t in threads)
        for thread in ready:
            resume = ctypes.cast(thread.frame, ctypes.POINTER(ctypes.c_void_p))[0]
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(resume)(thread.frame)
    _frames.clear()


def _complete(standing, threads):
    """Answer what can be answered now; the threads that may go on."""
    free = [t for t in standing if t.op in (Op.arrive, Op.yielded)]
    if free:
        for t in free:
            if t.op == Op.arrive:
                _arrived.setdefault(t.a[0], []).append(t.linear)
        return free
    for t in standing:
        found = _barrier(t, standing) if t.op in (Op.barrier, Op.barrier_red) else _warp(t, standing)
        if found:
            return found
    return []


_arrived: dict[int, list[int]] = {}
_rooms: dict[int, ctypes.Array] = {}  # of a warp


def _barrier(t, standing):
    here = [o for o in standing if o.op in (Op.barrier, Op.barrier_red) and o.a[0] == t.a[0]]
    wanted = t.a[1] or len(standing)
    if len(here) + len(_arrived.get(t.a[0], [])) < wanted:
        return []
    _arrived.pop(t.a[0], None)
    if t.op == Op.barrier_red:
        votes = [bool(o.a[3]) for o in here]
        for o in here:
            o.r[0] = (sum(votes), all(votes), any(votes))[o.a[2]]
    return here


def _warp(t, standing):
    warp = {o.linear % 32: o for o in standing if o.linear // 32 == t.linear // 32 and o.op == t.op}
    mask = t.mask
    if t.op == Op.active_mask:
        mask = sum(1 << lane for lane, o in warp.items() if o.line == t.line)
    alive = {o.linear % 32 for o in standing if o.linear // 32 == t.linear // 32}
    lanes = [lane for lane in range(32) if mask >> lane & 1 and lane in alive]
    if any(lane not in warp or (t.op != Op.active_mask and warp[lane].mask != mask) for lane in lanes):
        return []
    members = [warp[lane] for lane in lanes]
    values = {lane: warp[lane].a[0] for lane in lanes}
    for lane in lanes:
        o = warp[lane]
        if t.op == Op.active_mask:
            o.r[0] = mask
        elif t.op == Op.shuffle:
            o.r[0], o.r[1] = _shuffle(o, lane, values)
        elif t.op == Op.vote:
            p = [bool(v & 1) for v in values.values()]
            ballot = sum(1 << n for n, v in values.items() if v & 1)
            o.r[0] = (all(p), any(p), all(p) or not any(p), ballot)[o.a[1]]
        elif t.op == Op.match:
            same = sum(1 << n for n, v in values.items() if v == o.a[0])
            o.r[0], o.r[1] = (same, 0) if o.a[1] == 0 else ((mask, 1) if same == mask else (0, 0))
        elif t.op == Op.redux:
            o.r[0] = _redux(o.a[1], list(values.values()))
        elif t.op == Op.exchange:
            size, to = o.a[1], o.a[2]
            if not to:  # one room for all
                _rooms[t.linear // 32] = _rooms.get(t.linear // 32) or ctypes.create_string_buffer(32 * 128)
                to = o.r[0] = ctypes.addressof(_rooms[t.linear // 32])
            for n in lanes:
                ctypes.memmove(to + n * size, warp[n].a[0], size)
    return members


def _shuffle(o, lane, values):
    value, b, c, mode = o.a[0], o.a[1] & 31, o.a[2], o.a[3]
    clamp, segment = c & 31, c >> 8 & 31
    top = (lane & segment) | (clamp & ~segment & 31)
    low = lane & segment
    j = (lane - b, lane + b, lane ^ b, low | (b & ~segment & 31))[mode]
    inside = j >= top if mode == 0 else j <= top
    source = j if inside else lane
    return values.get(source, value), int(inside)


def _redux(kind, values):
    signed = [v - (1 << 32) if v >> 31 & 1 else v for v in values]
    out = values[0]
    if kind == 0:
        out = sum(values)
    elif kind in (1, 2):
        out = (min, max)[kind - 1](signed)
    elif kind in (3, 4):
        out = (min, max)[kind - 3](values)
    else:
        for v in values[1:]:
            out = (out & v, out | v, out ^ v)[kind - 5]
    return out & 0xFFFFFFFF
