"""What libcuda.so.1 calls when a module is loaded, linked, unloaded: the other side of native/cudacpu/module/image.hpp.

Each module that is loaded gets an execution engine of its own, and with it its own variables. What does not live here:
compiling (compiler), finding PTX in a fat binary (fatbin), loading the library itself (the package).
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import time
import traceback
from typing import TYPE_CHECKING, Any

from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.cudacpu.image import Image, Kernel

SUCCESS = 0
OUT_OF_MEMORY = 2
NO_BINARY_FOR_GPU = 209
INVALID_PTX = 218
UNSUPPORTED_PTX_VERSION = 222
NOT_SUPPORTED = 801
UNKNOWN = 999

_KINDS = {"loop": 0, "threads": 1, "regions": 2}
_SYMBOLS = ("frame", "printf", "fail", "assert", "check", "malloc", "free", "clock")

logger = logging.getLogger("hcq")


class _Request(ctypes.Structure):
    """`CompileRequest` of native/cudacpu/module/image.hpp."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("capability", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("only_compile", ctypes.c_uint32),
        ("memory", ctypes.c_uint64),
    )


class _Kernel(ctypes.Structure):
    """`KernelInfo` of native/cudacpu/module/image.hpp."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("params", ctypes.POINTER(ctypes.c_uint32)),
        ("param_count", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("local", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("required", ctypes.c_uint32 * 3),
        ("scratch_group", ctypes.c_uint32),
        ("scratch_item", ctypes.c_uint32),
        ("accesses", ctypes.c_char_p),
        ("access_bytes", ctypes.c_uint32),
    )


_COMPILE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Request))
_LOAD_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p)
_UNLOAD = ctypes.CFUNCTYPE(None, ctypes.c_uint64)


class Loader:
    """Gives a libcuda.so.1 its compiler. `compile_image` is what makes an image; tests give one of their own.

    The library calls from any thread, and holds no lock of its own then; ctypes takes the interpreter's for the call.
    """

    def __init__(
        self, library: ctypes.CDLL, compile_image: Callable[[bytes, int, bool, int], Image] | None = None
    ) -> None:
        self._library = library
        self._compile_image = compile_image or _compile
        self._loaded: dict[int, Any] = {}  # LLVM's execution engines, by handle
        self._numbers = itertools.count(1)
        self._ready = False
        self._parts: dict[int, Callable[[str], Image]] = {}  # what compiles kernels that were not, by handle
        # The library calls them: they stay.
        self._callbacks = _COMPILE(self._on_compile), _LOAD_KERNEL(self._on_load_kernel), _UNLOAD(self._on_unload)
        for name in ("kernel", "global", "file", "lines", "code", "log"):
            getattr(library, f"hcq_cuda_add_{name}").restype = None
        library.hcq_cuda_install.restype = library.hcq_cuda_set_handle.restype = None
        library.hcq_cuda_set_code.restype = None

    def install(self) -> None:
        """From now on the library's modules are compiled here. Replaces whoever did it before."""
        self._library.hcq_cuda_install(*self._callbacks)

    def remove(self) -> None:
        """The library compiles nothing from now on: called before the interpreter ends."""
        self._library.hcq_cuda_install(None, None, None)

    def _on_compile(self, image: int, request: Any) -> int:
        return self._told(image, lambda: self._load(ctypes.c_void_p(image), request.contents))

    def _on_load_kernel(self, image: int, number: int, name: bytes) -> int:
        return self._told(image, lambda: self._load_kernel(ctypes.c_void_p(image), number, name.decode()))

    def _told(self, image: int, load: Callable[[], int]) -> int:
        # What escaped from here would be printed and lost.
        try:
            return load()
        except CompileError as error:
            self._log(image, True, str(error))
            return _result_of(error)
        except MemoryError:
            return OUT_OF_MEMORY
        except BaseException:
            self._log(image, True, traceback.format_exc())
            return UNKNOWN

    def _load(self, image: ctypes.c_void_p, request: _Request) -> int:
        data = ctypes.string_at(request.data, request.size)
        began = time.perf_counter()
        compiled = self._compile_image(data, request.capability, bool(request.check), request.memory)
        taken = (time.perf_counter() - began) * 1e3
        names = ", ".join(kernel.name for kernel in compiled.kernels)
        self._log(image.value or 0, False, f"hcq.cudacpu: {names or 'no kernels'}; {taken:.1f} ms")
        if request.only_compile:
            return SUCCESS
        number, addresses = self._link(compiled)
        self._library.hcq_cuda_set_handle(image, ctypes.c_uint64(number))
        for kernel in compiled.kernels:
            self._library.hcq_cuda_add_kernel(image, ctypes.byref(_described(kernel, addresses[kernel.symbol])))
        for file in compiled.files:
            self._library.hcq_cuda_add_file(image, file.encode(errors="replace"))
        rows = [number for row in compiled.lines for number in row]
        self._library.hcq_cuda_add_lines(image, (ctypes.c_uint32 * len(rows))(*rows), ctypes.c_uint32(len(rows) // 3))
        self._add_code(image, compiled, addresses)
        for variable in compiled.globals:
            self._library.hcq_cuda_add_global(
                image,
                variable.name.encode(),
                ctypes.c_void_p(addresses[variable.symbol]),
                ctypes.c_size_t(variable.size),
                ctypes.c_int(variable.constant),
            )
        return SUCCESS

    def _link(self, compiled: Image) -> tuple[int, dict[str, int]]:
        import llvmlite.binding as llvm

        from hcq.drivers.cpu import llvm_host

        number = next(self._numbers)
        with llvm_host.LOCK:
            if not self._ready:
                llvm_host.host()
                for name in _SYMBOLS:
                    found = getattr(self._library, f"hcq_cuda_{name}")
                    llvm.add_symbol(f"hcq_cuda_{name}", ctypes.cast(found, ctypes.c_void_p).value)
                self._ready = True
            # MCJIT, since LLJIT keeps some 9 KB of each library for ever.
            machine = llvm.Target.from_default_triple().create_target_machine()
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            try:
                for each in compiled.objects:
                    engine.add_object_file(llvm.ObjectFileRef.from_data(each))
                engine.finalize_object()
            except RuntimeError as error:
                raise CompileError("the module can't be linked", str(error)) from None
            addresses = dict.fromkeys((kernel.symbol for kernel in compiled.kernels), 0)
            if not compiled.later:
                addresses = {each: engine.get_function_address(each) for each in addresses}
            addresses |= {each.symbol: engine.get_global_value_address(each.symbol) for each in compiled.globals}
        self._loaded[number] = engine
        if compiled.part is not None:
            self._parts[number] = compiled.part
        return number, addresses

    def _load_kernel(self, image: ctypes.c_void_p, number: int, name: str) -> int:
        """Compile a kernel of a module that is loaded without its kernels' code. It may be done twice at a time."""
        import llvmlite.binding as llvm

        from hcq.drivers.cpu import llvm_host

        began = time.perf_counter()
        compiled = self._parts[number](name)
        taken = (time.perf_counter() - began) * 1e3
        self._log(image.value or 0, False, f"hcq.cudacpu: {name}; {taken:.1f} ms")
        (kernel,) = compiled.kernels
        with llvm_host.LOCK:
            engine = self._loaded[number]
            entry = engine.get_function_address(kernel.symbol)
            if not entry:
                for each in compiled.objects:
                    engine.add_object_file(llvm.ObjectFileRef.from_data(each))
                engine.finalize_object()
                entry = engine.get_function_address(kernel.symbol)
        self._add_code(image, compiled, {kernel.symbol: entry})
        self._library.hcq_cuda_set_code(image, ctypes.byref(_described(kernel, entry)))
        return SUCCESS

    def _add_code(self, image: ctypes.c_void_p, compiled: Image, addresses: dict[str, int]) -> None:
        for each in compiled.code:
            if addresses.get(each.symbol):
                begin, count = addresses[each.symbol] - each.offset, len(each.rows) // 8
                self._library.hcq_cuda_add_code(image, ctypes.c_uint64(begin), each.rows, ctypes.c_uint32(count))

    def _on_unload(self, number: int) -> None:
        from hcq.drivers.cpu import llvm_host

        self._parts.pop(number, None)
        engine = self._loaded.pop(number, None)
        if engine is not None:
            with llvm_host.LOCK:
                engine.close()

    def _log(self, image: int, is_error: bool, text: str) -> None:
        self._library.hcq_cuda_add_log(ctypes.c_void_p(image), ctypes.c_int(is_error), text.encode(errors="replace"))


def _compile(data: bytes, capability: int, check: bool, memory: int) -> Image:
    from hcq.cudacpu import compiler, fatbin

    source = compiler.join(fatbin.texts(data, capability))
    return compiler.PtxCompiler(capability, check, memory=memory).image(source)


def _described(kernel: Kernel, entry: int) -> _Kernel:
    flat = [number for param in kernel.params for number in param]
    return _Kernel(
        kernel.name.encode(),
        entry,
        (ctypes.c_uint32 * len(flat))(*flat),
        len(kernel.params),
        _KINDS[kernel.kind],
        kernel.shared,
        kernel.local,
        kernel.registers,
        kernel.max_threads,
        kernel.required,
        kernel.scratch_group,
        kernel.scratch_item,
        kernel.accesses,
        len(kernel.accesses),
    )


def _result_of(error: CompileError) -> int:
    from hcq.cudacpu.fatbin import NoPtx
    from hcq.cudacpu.ptx.errors import LaterVersion, NoRoom, OtherTarget, Unsupported

    if isinstance(error, NoPtx | OtherTarget):
        return NO_BINARY_FOR_GPU
    if isinstance(error, NoRoom):
        return OUT_OF_MEMORY
    if isinstance(error, LaterVersion):
        return UNSUPPORTED_PTX_VERSION
    return NOT_SUPPORTED if isinstance(error, Unsupported) else INVALID_PTX
