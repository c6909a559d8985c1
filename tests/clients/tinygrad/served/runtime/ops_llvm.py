"""Served as `tinygrad.runtime.ops_llvm`: hcq's LLVM device with tinygrad's renderer."""

from __future__ import annotations

from typing import Any

from tinygrad.device import listed_graph, renderer, uncollected

from hcq.drivers.cpu import compiler_llvm, open_llvm

__all__ = ["LLVMCompiler", "LLVMDevice"]


class LLVMCompiler(compiler_llvm.LLVMCompiler):
    """hcq's, which imports what compiles with the first kernel."""

    def compile(self, src: str | bytes) -> bytes:
        with uncollected():
            return super().compile(src)


def LLVMDevice(device: str = "LLVM") -> Any:
    """The LLVM device of that name, as tinygrad's callers want it."""
    opened = open_llvm(device)
    opened.compiler = LLVMCompiler()
    opened.compiler.load_ahead()  # tinygrad's renderer takes as long to import
    from tinygrad.renderer.llvmir import LLVMRenderer

    opened.renderer = renderer(LLVMRenderer())
    opened.graph = listed_graph
    return opened
