"""Served as `tinygrad.runtime.ops_clang`: hcq's CLANG device with tinygrad's renderer and tinygrad's graph in C.

tinygrad's graph writes addresses into C source, and calls the function that comes of it by position, values behind
buffers. Both are said in ctypes there; here they are translated. The source is that of every kernel again, and a call
for every launch: inlining the calls would take seconds for nothing.
"""

from __future__ import annotations

import ctypes
import functools
import types
from typing import Any

from tinygrad.device import Device, listed_graph, renderer

from hcq.drivers.cpu import compiler_c, open_clang, toolchain
from hcq.errors import CompileError, InvalidProgram

__all__ = ["ClangCompiler", "ClangDevice", "ClangProgram"]

_HALF = """#ifndef __clang__
#define __fp16 _Float16
#endif
"""


class ClangCompiler(compiler_c.ClangCompiler):
    """hcq's C compiler, which may be one that doesn't know clang's name of half floats."""

    def __init__(self, cachekey: str | None = "clang of tinygrad") -> None:
        super().__init__(cachekey)

    def compile(self, src: str | bytes) -> bytes:
        return super().compile(_for_any_compiler(src))


def ClangDevice(device: str = "CLANG") -> Any:
    """The CLANG device of that name, as tinygrad's callers want it."""
    from tinygrad.renderer.cstyle import ClangRenderer

    opened = open_clang(device)
    opened.compiler = ClangCompiler()
    opened.renderer = renderer(ClangRenderer())
    opened.graph = functools.partial(_graph, opened)
    return opened


class ClangProgram:
    """A function as tinygrad's graph calls it: buffers, then values, all by position. Queued on `device`."""

    def __init__(self, name: str, lib: bytes, device: Any = None) -> None:
        self.name, self.lib = name, lib
        self.program = (Device["CLANG"] if device is None else device).runtime(name, lib)
        kinds = [kind for kind, _ in self.program.signature or ()]
        self.buffers = kinds.count("pointer")

    def __call__(self, *args: Any, wait: bool = False) -> float | None:
        took: float | None = self.program(*args[: self.buffers], vals=args[self.buffers :], wait=wait)
        return took


class _GraphCompiler:
    """Compiles the source of a graph. It is full of addresses, so nothing is cached."""

    def compile(self, source: str) -> bytes:
        found = toolchain.find_c_compiler()
        if found is None:
            raise CompileError(toolchain.missing(), source=source)
        from hcq.drivers.cpu import object_library  # opening a device should not wait for it

        made = toolchain.compile_object(found, _for_any_compiler(source), ("-fno-inline",))
        return object_library.make_library(made.object)


def _graph(device: Any, jit_cache: list[Any], input_rawbuffers: list[Any], var_vals: dict[Any, int]) -> Any:
    """tinygrad's ClangGraph, running on `device`; one of hcq's where its function would have too many arguments."""
    try:
        return _graph_class()(device, jit_cache, input_rawbuffers, var_vals)
    except (CompileError, InvalidProgram):
        return listed_graph(jit_cache, input_rawbuffers, var_vals)


@functools.cache
def _graph_class() -> type[Any]:
    from tinygrad.runtime.graph import clang

    clang.ctypes = types.SimpleNamespace(addressof=_address)
    clang.Device = {"CLANG": types.SimpleNamespace(compiler=_GraphCompiler())}

    class ClangGraph(clang.ClangGraph):  # type: ignore[misc]
        """tinygrad's own, for the device that its kernels are for, and called without detours."""

        def __init__(self, device: Any, *args: Any) -> None:
            super().__init__(*args)
            if device.dname != "CLANG":
                self.clprg = ClangProgram(self.clprg.name, self.clprg.lib, device)
            self.program = self.clprg.program

        def __call__(self, rawbufs: list[Any], var_vals: dict[Any, int], wait: bool = False) -> float | None:
            # As tinygrad's own, which wraps the call in three more of Python: half of what a launch costs here.
            bufs = [buf._buf for buf in rawbufs]
            took: float | None = self.program(*bufs, vals=[var_vals[v] for v in self.vars], wait=wait)
            return took

    return ClangGraph


def _for_any_compiler(source: Any) -> Any:
    return _HALF + source if isinstance(source, str) and "__fp16" in source else source


def _address(memory: Any) -> int:
    address = getattr(memory, "va_addr", None)
    return ctypes.addressof(memory) if address is None else address
