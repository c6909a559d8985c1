"""Served as `tinygrad.device`: the names that tinygrad's callers import from there, and all of them are hcq's.

Which device is which is in runtime/ops_*.py beside this. What stays tinygrad's, and is shared: GlobalCounters, getenv,
its disk cache, its profile logger, dtypes, renderers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tinygrad.helpers import PROFILE, GlobalCounters

if PROFILE:
    # tinygrad's profiler writes PROFILEPATH: hcq's own, which begins when hcq is imported, would write over it.
    os.environ["PROFILE"] = "0"
    import hcq  # noqa: F401

    os.environ["PROFILE"] = str(PROFILE.value)

from hcq import (
    Allocator,
    Buffer,
    BufferOptions,
    Compiled,
    CompileError,
    Compiler,
    Device,
    LRUAllocator,
    MallocAllocator,
)

if TYPE_CHECKING:
    from hcq import (
        HCQAllocator,
        HCQBuffer,
        HCQCompiled,
        HCQProgram,
        HCQSignal,
        HWCommandQueue,
        HWComputeQueue,
        HWCopyQueue,
        hcq_command,
        hcq_profile,
    )

__all__ = [
    "Allocator",
    "Buffer",
    "BufferOptions",
    "CompileError",
    "Compiled",
    "Compiler",
    "Device",
    "HCQAllocator",
    "HCQArgsState",
    "HCQBuffer",
    "HCQCompiled",
    "HCQProgram",
    "HCQSignal",
    "HWCommandQueue",
    "HWComputeQueue",
    "HWCopyQueue",
    "LRUAllocator",
    "MallocAllocator",
    "hcq_command",
    "hcq_profile",
]

_QUEUES = frozenset(
    ("HCQAllocator", "HCQBuffer", "HCQCompiled", "HCQProgram", "HCQSignal", "HWCommandQueue", "HWComputeQueue")
    + ("HWCopyQueue", "hcq_command", "hcq_profile")
)
"""Names of hcq's that only clients with queues of their own ask for: imported then, as hcq itself does."""

_DEVICES = {
    "AMD": ("tinygrad.runtime.ops_amd", "AMDDevice"),
    "CLANG": ("tinygrad.runtime.ops_clang", "ClangDevice"),
    "DISK": ("tinygrad.runtime.ops_disk", "DiskDevice"),
    "LLVM": ("tinygrad.runtime.ops_llvm", "LLVMDevice"),
    "NPY": ("tinygrad.runtime.ops_npy", "NpyDevice"),
    "PYTHON": ("tinygrad.runtime.ops_npy", "PythonDevice"),
}
"""Where the devices are that tinygrad needs more of than hcq's own have: a renderer, a graph."""


def __getattr__(name: str) -> Any:
    if name not in _QUEUES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import hcq

    value = globals()[name] = getattr(hcq, name)
    return value


def renderer(tinygrads: Any) -> Any:
    """A renderer of tinygrad's for a device of ours: what it searches for and times is kept under another name."""
    tinygrads.suffix += "HCQ"
    return tinygrads


def listed_graph(jit_cache: list[Any], input_rawbuffers: list[Any], var_vals: dict[Any, int]) -> Any:
    """The `graph` of our devices. Looked up late: tinygrad's JIT is not there yet when this is imported."""
    from tinygrad.runtime.graph.listed import ListedGraph

    return ListedGraph(jit_cache, input_rawbuffers, var_vals)


class HCQArgsState(int):
    """Kernargs of `program`: their address, which a queue's exec takes, with the arguments that stand there."""

    program: HCQProgram
    bufs: list[Any]
    vals: list[int]

    def __new__(cls, address: int, program: HCQProgram, bufs: Iterable[Any], vals: Iterable[int] = ()) -> HCQArgsState:
        self = super().__new__(cls, address)
        self.program, self.bufs, self.vals = program, list(bufs), list(vals)
        return self

    def update_buffer(self, index: int, buf: Any) -> None:
        """Another buffer in that place, for the submits that come. Nothing queued may read the kernargs any more."""
        self.bufs[index] = buf
        self.program.fill_kernargs(self.bufs, self.vals, int(self))

    def update_var(self, index: int, val: int) -> None:
        """The same for a value."""
        self.vals[index] = val
        self.program.fill_kernargs(self.bufs, self.vals, int(self))


class _LiveBytes:
    """`GlobalCounters.mem_used`: what hcq counts anyway, read when it is looked at."""

    def __get__(self, instance: object, owner: object = None) -> int:
        from hcq import memory_stats

        return sum(stats.live_bytes for stats in memory_stats().values())


def _register(name: str, module: str, attribute: str) -> None:
    def factory(canonical: str) -> Compiled:
        device: Compiled = getattr(import_module(module), attribute)(canonical)
        return device

    Device.register(name, factory, replace=True)


def _forget_programs() -> None:
    """In a forked child: the kernels that tinygrad keeps are loaded for the parent's devices."""
    realize = sys.modules.get("tinygrad.engine.realize")
    if realize is not None:
        realize.method_cache.clear()


GlobalCounters.mem_used = _LiveBytes()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_programs)
for _name, _where in _DEVICES.items():
    _register(_name, *_where)
