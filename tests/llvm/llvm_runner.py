"""Runs what LLVMCompiler makes, on this thread, without a device: the object by LLVM's own loader, groups in a loop."""

from __future__ import annotations

import ctypes
import itertools
import struct

import llvmlite.binding as llvm
from cpu_code import FORMATS

from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.drivers.cpu.library import EntryKind, Function, ParamKind, unpack

GUARD = 0x5A


class Loaded:
    """A compiled module; `run` launches one of its functions."""

    _numbers = itertools.count()

    def __init__(self, source: str, compiler: LLVMCompiler | None = None) -> None:
        self.library = (compiler or LLVMCompiler()).compile(source)
        parts = unpack(self.library)
        self.functions: dict[str, Function] = {f.name: f for f in parts.functions}
        self._jit = llvm.create_lljit_compiler()
        builder = llvm.JITLibraryBuilder().add_object_img(parts.object).add_current_process()
        for function in parts.functions:
            if not function.refused:
                builder.export_symbol(function.name)
        self._resources = builder.link(self._jit, f"library{next(self._numbers)}")

    def run(self, name, *args, global_size=(1, 1, 1), local_size=(1, 1, 1)) -> None:
        """Launch over NumPy arrays and values. Checks that the scratch memory is not overrun."""
        function = self.functions[name]
        kernargs = bytearray(4096)
        for param, offset, arg in zip(function.params, function.offsets(), args, strict=True):
            value = arg.ctypes.data if param.kind is ParamKind.POINTER else arg
            struct.pack_into("<" + FORMATS[param.kind], kernargs, offset, value)
        raw = (ctypes.c_uint8 * len(kernargs)).from_buffer(kernargs)
        address = self._resources[name]
        if function.kind is EntryKind.PACKED:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(raw))
            return
        assert function.kind is EntryKind.GROUP
        gx, gy, gz = global_size
        items = local_size[0] * local_size[1] * local_size[2]
        size = function.scratch_group + (items + 63) // 64 * 64 * function.scratch_item
        memory = (ctypes.c_uint8 * (size + 128))(*[GUARD] * (size + 128))
        scratch = -(-ctypes.addressof(memory) // 64) * 64
        entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
        for z, y, x in itertools.product(range(gz), range(gy), range(gx)):
            context = struct.pack("<9IIQ", x, y, z, gx, gy, gz, *local_size, 0, scratch)
            entry(ctypes.addressof(raw), context)
        after = ctypes.string_at(scratch + size, 64 - (scratch - ctypes.addressof(memory)) % 64)
        assert after == bytes([GUARD]) * len(after), "scratch memory overrun"
