"""Served as `tinygrad.runtime.ops_amd`: hcq's CPU device under the name that tinygrad's HCQ graph and profiler serve.

Kernels have work-groups and work-items, so that its multi-device graph, its peer copies and its profiler run on our
queues, kernargs and signals. What does not live here: the graph itself, which is tinygrad's (runtime/graph/hcq), and
what its profiler wants to be told (profiler).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tinygrad.device import HCQArgsState, renderer
from tinygrad.dtype import DType
from tinygrad.helpers import PROFILE, dedup
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.runtime.ops_clang import ClangCompiler
from tinygrad.runtime.profiler import Profiler, graphs, timed_copy

from hcq import _native, hcq_profile
from hcq.drivers.cpu.allocator import CPUAllocator
from hcq.drivers.cpu.device import CPUDevice
from hcq.drivers.cpu.program import CPUProgram
from hcq.runtime.registry import device_index

__all__ = ["AMDDevice", "GroupRenderer"]

_COMPONENTS = "xyzwabcd"


class GroupRenderer(ClangRenderer):  # type: ignore[misc]
    """tinygrad's C for hcq's grid kernels. Vectors are structs, since it names their parts as a GPU's C does."""

    device = "AMD"
    has_local = True
    global_max = CPUDevice.limits.max_groups
    local_max = CPUDevice.limits.max_group_size
    kernel_prefix = "HCQ_KERNEL "
    smem_prefix = "HCQ_LOCAL "
    smem_align = "_Alignas(64) "
    smem_prefix_for_cast = False
    barrier = "hcq_barrier();"
    float4 = "make_float4"
    code_for_workitem = {"g": "hcq_group_id({})".format, "l": "hcq_local_id({})".format}

    def render_kernel(self, function_name: str, kernel: Any, bufs: Any, uops: Any, prefix: Any = None) -> str:
        vectors = dedup(uop.dtype for uop in uops if uop.dtype is not None and uop.dtype.count > 1)
        prefix = ["#include <hcq.h>", *(self._vector(dtype) for dtype in vectors)]
        # ClangRenderer's own would declare vectors of the compiler.
        source: str = super(ClangRenderer, self).render_kernel(function_name, kernel, bufs, uops, prefix)
        return source

    def _vector(self, dtype: DType) -> str:
        name, scalar = self.render_dtype(dtype), self.render_dtype(dtype.scalar())
        parts = _COMPONENTS[: dtype.count]
        return (
            f"typedef struct {{ {scalar} {', '.join(parts)}; }} __attribute__((aligned({dtype.itemsize}))) {name};\n"
            f"static inline {name} make_{name}({', '.join(f'{scalar} {part}' for part in parts)}) "
            f"{{ return ({name}){{{', '.join(parts)}}}; }}"
        )


@_native.inherit_vectorcall
class Program(CPUProgram):
    """A grid kernel; its kernargs can be changed afterwards, as tinygrad's graph does."""

    __slots__ = ()

    def fill_kernargs(self, bufs: Sequence[Any], vals: Sequence[Any] = (), kernargs_ptr: int | None = None) -> int:
        state: int = HCQArgsState(super().fill_kernargs(bufs, vals, kernargs_ptr), self, bufs, vals)
        return state


class TimedProgram(Program):
    """The same with PROFILE=1: time-stamps stand around each launch."""

    __slots__ = ()

    def __call__(self, *args: Any, wait: bool = False, **sizes: Any) -> float | None:
        device = self.device
        with hcq_profile(device, True, self.name, queue_type=device.hw_compute_queue_t) as (start, end):
            took: float | None = super().__call__(*args, wait=wait, **sizes)
        device.profiler.add(start, end, self.name, False)
        return took


class TimedAllocator(CPUAllocator):
    """hcq's with PROFILE=1: tells the profiler of copies."""

    def copyin(self, dest: Any, src: memoryview) -> None:
        with timed_copy(self.device, f"CPU -> {self.device.dname}", dest.size):
            super().copyin(dest, src)

    def copyout(self, dest: memoryview, src: Any) -> None:
        with timed_copy(self.device, f"{self.device.dname} -> CPU", src.size):
            super().copyout(dest, src)

    def transfer(self, dest: Any, src: Any, size: int, src_dev: Any, dest_dev: Any, stream: Any = None) -> None:
        name = f"{src_dev.dname} -> {dest_dev.dname}"
        with hcq_profile(src_dev, True, name, queue_type=src_dev.hw_copy_queue_t) as (start, end):
            super().transfer(dest, src, size, src_dev, dest_dev, stream)
        src_dev.profiler.add(start, end, name, True, size)


class AMDDevice(CPUDevice):
    """The device `AMD`, `AMD:1` ...: `dev.graph` is tinygrad's HCQGraph, `dev.profiler` what PROFILE=1 collects."""

    is_cpu_implementation = True  # only used when named

    def __init__(self, device: str = "AMD") -> None:
        device_index(device)
        compiler = ClangCompiler()
        compiler.look_around()
        super().__init__(device, compiler, "c")
        self.renderer = renderer(GroupRenderer())
        self.profiler = Profiler(self) if PROFILE else None
        if self.profiler is not None:
            self.allocator = TimedAllocator(self)
        self.runtime = functools.partial(TimedProgram if PROFILE else Program, self)
        self.graph = _graph_class()

    def _close(self) -> None:
        if self.profiler is not None:
            self.profiler.finish()
        super()._close()


@functools.cache
def _graph_class() -> type[Any]:
    from tinygrad.runtime.graph import hcq

    class HCQGraph(hcq.HCQGraph):  # type: ignore[misc]
        """tinygrad's, known to the profiler so that its last replay is not missed."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            if PROFILE:
                graphs.add(self)

    return HCQGraph
