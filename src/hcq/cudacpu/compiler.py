"""From PTX to an object for the host's processor, through the compile cache.

What does not live here: the parser and the translation (ptx, lower), LLVM itself (hcq.drivers.cpu.llvm_host), and what
becomes of an object (loading).
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from hcq.cudacpu import debug
from hcq.cudacpu.image import Global, Image, Kernel, pack, unpack
from hcq.cudacpu.ptx.nodes import Instruction, Module
from hcq.drivers.cpu import toolchain
from hcq.drivers.cpu.compiler_llvm import LLVMCompiler
from hcq.drivers.cpu.elf import Object
from hcq.errors import CompileError
from hcq.runtime.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.cudacpu.lower import Options, Translated

logger = logging.getLogger("hcq")

_REVISION = "4"  # raised when the object made from the same LLVM IR changes
_REGISTERS = 32  # what hardware would use isn't known here; with this many any block fits
_AT_ONCE = 1  # kernels that are compiled when their module is loaded; of more, each is when it is asked for
_SEPARATOR = "\0"  # between the texts of a module that was linked; PTX has none


class PtxCompiler(Compiler):
    """Compiles PTX for devices of one compute capability (90 is 9.0), with checks of memory and barriers or without.
    Without `regions` every kernel that suspends is a coroutine: for tests of one against the other. `memory` is what
    the device has for variables, in bytes; 0: enough.

    The source is the text of one module, or of several to be linked, with a zero byte between them. Threads may share
    one; LLVM works for one at a time. `compile` blocks for some milliseconds and more.
    """

    def __init__(
        self,
        capability: int,
        check: bool = False,
        regions: bool = True,
        cachekey: str | None = "cudacpu",
        memory: int = 0,
    ) -> None:
        super().__init__(cachekey)
        self.capability = capability
        self.check = check
        self.regions = regions and not check  # what is checked is checked thread by thread
        self.memory = memory
        self._parsed: tuple[str | bytes, Module] | None = None  # what was compiled last, if its kernels were not

    def image(self, src: str | bytes) -> Image:
        """What `compile` makes, from the cache where it is there. Raises CompileError as that does."""
        from hcq.cudacpu.lower import layout

        image = unpack(self.compile_cached(src))
        layout.check_room(sum(each.size for each in image.globals), self.memory)  # a smaller device than the entry's
        parsed, self._parsed = self._parsed, None
        module = parsed[1] if parsed is not None and parsed[0] is src else None
        return image._replace(part=_Kernels(self, src, module).image) if image.later else image

    def compile(self, src: str | bytes) -> bytes:
        """The packed image of a module. Raises CompileError: a PtxError with the line, for what is wrong or not run."""
        from hcq.cudacpu import lower
        from hcq.drivers.cpu import llvm_host

        llvm_host.load_ahead()
        module, options = _parsed(src), self._options()
        translated = lower.translate(module, options)
        variables = lower.variables_of(module) if len(translated.kernels) > _AT_ONCE else None
        if variables is None:
            return pack(_compiled(module, translated, options))
        self._parsed = src, module
        objects = [_object(lower.translate(variables, options).llvm_ir)]
        return pack(_image(module, translated, objects, {})._replace(later=True))

    def _options(self) -> Options:
        from hcq.cudacpu.lower import Options

        return Options(capability=self.capability, check=self.check, regions=self.regions, memory=self.memory)

    def identity(self) -> str | None:
        """llvmlite's version, which is that of the LLVM in it."""
        return LLVMCompiler(None).identity()

    def key_parts(self) -> Mapping[str, str]:
        """Processor, capability, checks, and the state of the translation's own sources."""
        return {
            "flags": f"O3, image {_REVISION}, capability {self.capability}, check {self.check:d}, "
            f"regions {self.regions:d}",
            "target": toolchain.host_features(),
            "translation": _sources(),
        }


class _Kernels(Compiler):
    """Compiles kernels of one module, each by itself, when it is asked for. The source is a kernel's name, below the
    digest of the module's text."""

    def __init__(self, whole: PtxCompiler, src: str | bytes, module: Module | None) -> None:
        super().__init__(whole.cachekey)
        self._whole = whole
        self._src = src
        self._module = module  # parsed when the first is not in the cache

    def image(self, name: str) -> Image:
        """An image of one kernel, without the module's variables. Raises CompileError."""
        text = self._src if isinstance(self._src, bytes) else self._src.encode("utf-8", "surrogateescape")
        return unpack(self.compile_cached(f"{hashlib.blake2b(text).hexdigest()}\n{name}"))

    def compile(self, src: str | bytes) -> bytes:
        """The packed image."""
        from hcq.cudacpu import lower

        name = (src if isinstance(src, str) else src.decode("utf-8", "surrogateescape")).partition("\n")[2]
        self._module = self._module or _parsed(self._src)
        part = lower.kernel_of(self._module, name)
        options = replace(self._whole._options(), external=True)
        return pack(_compiled(part, lower.translate(part, options), options)._replace(globals=(), files=(), lines=()))

    def identity(self) -> str | None:
        """The module's compiler's."""
        return self._whole.identity()

    def key_parts(self) -> Mapping[str, str]:
        """The module's compiler's."""
        return {**self._whole.key_parts(), "part": "kernel"}


def _parsed(src: str | bytes) -> Module:
    from hcq.cudacpu import ptx

    text = src if isinstance(src, str) else src.decode("utf-8", "surrogateescape")
    return ptx.link([ptx.parse(part) for part in text.split(_SEPARATOR)])


def _compiled(module: Module, translated: Translated, options: Options) -> Image:
    """The image of a module with all that is in it."""
    from hcq.cudacpu import lower

    objects = [_object(translated.llvm_ir)]
    scratch: dict[str, tuple[int, int]] = {}  # bytes for a block, and for each thread
    if translated.regions:
        try:
            regions, scratch = _regions(translated.regions)
            objects.append(regions)
        except Exception as error:  # whatever the lowering stumbled over: every kernel can be a coroutine
            logger.warning("hcq.cudacpu: a module runs as coroutines, for in regions: %s", error)
            translated = lower.translate(module, replace(options, regions=False))
            objects = [_object(translated.llvm_ir)]
    return _image(module, translated, objects, scratch)


def join(texts: list[str]) -> str:
    """One source of the texts of several modules that are to be linked."""
    return _SEPARATOR.join(texts)


def _object(llvm_ir: str) -> bytes:
    from hcq.drivers.cpu import llvm_host

    llvm_ir = debug.with_lines(llvm_ir)
    with llvm_host.LOCK, llvm_host.Session(llvm_ir) as session:
        host = llvm_host.host()
        module = session.parse(llvm_ir)
        module.triple, module.data_layout = host.triple, host.layout
        try:
            return llvm_host.emit(module, far=True)
        except RuntimeError as error:
            raise CompileError("LLVM refuses the module that was made of the PTX", str(error), llvm_ir) from None


def _regions(llvm_ir: str) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The object of kernels that are to become regions, and the scratch memory of each."""
    from hcq.cudacpu import inductions
    from hcq.drivers.cpu import llvm_host
    from hcq.drivers.cpu.llvm_module import Lowering

    with llvm_host.LOCK, llvm_host.Session(llvm_ir) as session:
        session.source = inductions.split(session, llvm_ir)
        lowering = Lowering(session, debug.with_lines, groups=True)
        module = lowering.run()
        scratch = {each.name: (each.scratch_group, each.scratch_item) for each in lowering.functions}
        return llvm_host.emit(module, far=True), scratch


def _image(module: Module, translated: Translated, objects: list[bytes], scratch: dict[str, tuple[int, int]]) -> Image:
    kernels = []
    for k in translated.kernels:
        params = tuple((offset, size) for offset, size, _ in k.params)
        rest = k.shared, k.local, k.registers or _REGISTERS, k.max_threads, k.required or (0, 0, 0)
        kernels.append(Kernel(k.name, k.symbol, k.kind, params, *rest, *scratch.get(k.symbol, (0, 0)), k.accesses))
    variables = tuple(Global(g.name, g.symbol, g.size, g.space == "const") for g in translated.globals)
    code = tuple(map(debug.table, objects))
    return Image(tuple(kernels), variables, *_lines(module), tuple(Object(each).stripped() for each in objects), code)


def _lines(module: Module) -> tuple[tuple[str, ...], tuple[tuple[int, int, int], ...]]:
    """The files that the PTX was made of, and where each line of it came from: by its .loc directives."""
    places = {number: place for place, number in enumerate(module.files)}
    found: list[tuple[int, int, int]] = []
    for function in module.functions:
        before: tuple[int, int] | None = None
        for each in function.body or ():
            if isinstance(each, Instruction):
                file, line, _ = each.source or (0, 0, 0)
                here = places.get(file, 0), line if file in places else 0
                if here != before:
                    found.append((each.line, *here))
                    before = here
    return tuple(module.files.values()), tuple(sorted(found))


@functools.cache
def _sources() -> str:
    """The state of the translation's sources, so that work on them, or another version, makes new entries."""
    here = os.path.dirname(os.path.abspath(__file__))
    regions = os.path.dirname(os.path.abspath(toolchain.__file__))
    state = []
    for start in (here, regions):
        for folder, _, names in os.walk(start):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
                found = os.stat(path)
                state.append(f"{os.path.relpath(path, start)} {found.st_size} {found.st_mtime_ns}")
    return hashlib.blake2b("\n".join(sorted(state)).encode(), digest_size=8).hexdigest()
