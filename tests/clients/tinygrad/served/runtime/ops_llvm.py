"""Served as `tinygrad.runtime.ops_llvm`: hcq's LLVM device with tinygrad's renderer."""

from __future__ import annotations

from typing import Any

from tinygrad.device import listed_graph, renderer

from hcq.drivers.cpu import open_llvm
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler

__all__ = ["LLVMCompiler", "LLVMDevice"]


def LLVMDevice(device: str = "LLVM") -> Any:
    """The LLVM device of that name, as tinygrad's callers want it."""
    opened = open_llvm(device)
    opened.compiler.load_ahead()  # tinygrad's renderer takes as long to import
    from tinygrad.renderer.llvmir import LLVMRenderer

    opened.renderer = renderer(LLVMRenderer())
    opened.graph = listed_graph
    return opened
