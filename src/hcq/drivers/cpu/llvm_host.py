"""LLVM in this process: one lock, the host's target machine, parsing, optimising, emitting. LLVM is llvmlite's.

It is loaded when first needed. What does not live here: how it is called (llvm_library, or llvmlite.binding), and what
is compiled (compiler_llvm, llvm_grid).
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import _native
from hcq.errors import CompileError

if TYPE_CHECKING:
    from types import ModuleType

# Compiled by re where something is wrong: compiling them takes as long as LLVM takes to parse a kernel.
_WHERE = r"<string>:(\d+):(\d+): (?:error: )?(.*)"
_LOOKS_LIKE_IR = r"(?m)^\s*(define |declare |target |source_filename|[@%][\w.$]+ *=)"

LOCK = threading.RLock()
"""Held while LLVM works: llvmlite's objects are not made for two threads. Held over a fork as well, so that a child
never inherits LLVM in the middle of something; a fork therefore waits for a compile that is under way."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


def load_ahead() -> None:
    """Begin to load LLVM, in a thread of its own and without the interpreter's lock, for a program that will compile:
    it takes some 8 ms, in which Python can do other things. May be repeated. Blocks no longer than starting a thread.
    """
    global _loading
    if _loading or "llvmlite.binding" in sys.modules:
        return
    _loading = True
    path = _library()
    if path is not None:  # elsewhere importing llvmlite finds it
        threading.Thread(target=_load, args=(path,), name="hcq-load-llvm").start()


def _library() -> str | None:
    """The file of llvmlite's library, where llvmlite is installed as files."""
    found = PathFinder.find_spec("llvmlite")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = os.path.join(folder, "binding", "libllvmlite.so")
        if os.path.exists(path):
            return path
    return None


def _load(path: str) -> None:
    with LOCK:  # so that no fork happens in the middle of it
        _native.load_shared(path)


_loading = False


class Host(NamedTuple):
    """What code is made for."""

    cpu: str
    features: str
    triple: str
    layout: str
    machine: Any  # llvmlite TargetMachine
    data: Any  # llvmlite TargetData


@functools.cache
def binding() -> ModuleType:
    """llvmlite.binding, or llvm_library, which has what is used of it. Raises CompileError where llvmlite is not
    installed. What one of the two made is nothing to the other, so it is decided once. Call it holding LOCK."""
    # Imported already, it costs nothing, and its own lock is taken at each call.
    direct = None if "llvmlite.binding" in sys.modules else _direct()
    if direct is not None:
        return direct
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CompileError(
            "the LLVM device compiles through llvmlite, which can't be imported", f"{error}; pip install llvmlite"
        ) from None
    found: ModuleType = llvm
    return found


def _direct() -> ModuleType | None:
    """llvm_library, where the installed release of llvmlite is one that it knows."""
    if sys.modules.get("llvmlite", sys) is None:  # what the program has ruled out stays so
        return None
    from hcq.drivers.cpu.compiler_llvm import installed_version
    from hcq.drivers.cpu.llvm_functions import RELEASES, lib

    path, version = _library(), installed_version()
    if path is None or version is None or not version.startswith(RELEASES):
        return None
    try:
        lib.load(path)
    except OSError:
        return None
    from hcq.drivers.cpu import llvm_library

    return llvm_library


@functools.cache
def host() -> Host:
    """The host's processor, as LLVM sees it. Call it holding LOCK."""
    llvm = binding()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # inline assembly
    cpu, triple = llvm.get_host_cpu_name(), llvm.get_process_triple()
    features = llvm.get_host_cpu_features().flatten()
    # 512-bit vectors were no faster in any kernel measured (docs/design/llvm-grid.md), and their remainders are longer.
    features += ",+prefer-256-bit" if "+avx512f" in features.split(",") else ""
    # Position-independent and small: the loader puts objects anywhere, code and data within 2 GiB of each other.
    machine = _machine(triple, cpu, features, "pic", "small")
    data = machine.target_data
    return Host(cpu, features, triple, str(data), machine, data)


@functools.cache
def _machine(triple: str, cpu: str, features: str, addresses: str, code_model: str) -> Any:
    target = binding().Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc=addresses, codemodel=code_model)


class Session:
    """The modules of one compilation, in a context of their own. Leaving it frees them, whoever still refers to them:
    left to the garbage collector, a context may go before its modules, and that ends in a crash. Use it holding LOCK.

    `source` is the user's text, for messages.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._context = binding().context.create_context()
        self._modules: list[Any] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for module in self._modules:
            module.close()
        self._context.close()

    def parse(self, text: str) -> Any:
        """A verified module of the user's text, or what was made of it. Raises CompileError."""
        try:
            return self._parse(text)
        except CompileError as error:
            if text == self.source:
                raise
            first = error.log.partition("\n")[0]
            what = f"LLVM IR that can't be lowered for the CPU; of the lowered module LLVM says: {first}"
            raise CompileError(what, error.log, self.source) from None

    def _parse(self, text: str) -> Any:
        try:
            module = binding().parse_assembly(text, self._context)
        except RuntimeError as error:
            log = str(error).removeprefix("LLVM IR parsing error\n")
            where = re.search(_WHERE, log)
            what = f"line {where[1]}, column {where[2]}: {where[3]}" if where else "it can't be parsed"
            if where and where[3].strip() == "expected top-level entity" and not re.search(_LOOKS_LIKE_IR, text):
                what += (
                    " (this is the LLVM device, which takes LLVM IR, and this looks like none;"
                    " CPU means LLVM where no C compiler is found)"
                )
            raise CompileError(f"LLVM IR, {what}", log.replace("<string>:", "line "), self.source) from None
        self._modules.append(module)
        try:
            module.verify()
        except RuntimeError as error:
            log = str(error)
            line = _line_of(log, self.source)
            what = f"line {line}: " if line else ""
            raise CompileError(f"LLVM IR, {what}{log.splitlines()[0]}", log, self.source) from None
        return module


def run_passes(module: Any, *names: str) -> None:
    """Run single passes (llvmlite's add_<name>_pass) over a module."""
    llvm, machine = binding(), host().machine
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    manager = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(manager, f"add_{name}_pass")()
    _run(manager, module, builder)


def optimise(module: Any, machine: Any, options: Any = None) -> None:
    """Run LLVM's own passes for O3 over a module, for a target machine."""
    llvm = binding()
    builder = llvm.create_pass_builder(machine, options or llvm.create_pipeline_tuning_options(speed_level=3))
    _run(builder.getModulePassManager(), module, builder)


def _run(manager: Any, module: Any, builder: Any) -> None:
    """Run a pass manager, which is good for once, and free it. Left to itself, llvmlite keeps it for ever, some 50 KB:
    of the bases of its class the first has a `_dispose` that does nothing."""
    llvm = binding()
    try:
        manager.run(module, builder)
    finally:
        if not hasattr(llvm, "newpassmanagers"):
            manager.close()
        elif (dispose := getattr(llvm.newpassmanagers.NewPassManager, "_dispose", None)) is not None:
            dispose(manager)  # there from 0.48 to 0.50; a later llvmlite may have another way
            manager.detach()


def emit(module: Any, far: bool = False) -> bytes:
    """Optimise a module for the host and make a relocatable ELF object of it.

    `far`: its sections, and what it refers to, may lie anywhere. LLVM's own loader puts them where there is room.
    """
    llvm, here = binding(), host()
    machine = _machine(here.triple, here.cpu, here.features, "static", "large") if far else here.machine
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    options.loop_interleaving = options.loop_unrolling = True
    optimise(module, machine, options)
    return bytes(machine.emit_object(module))


def _line_of(log: str, source: str) -> int:
    """Line of the instruction that the verifier printed, 0 where it can't be found exactly once."""
    lines = ["".join(line.split(";")[0].split()) for line in source.splitlines()]
    for shown in log.splitlines()[1:]:
        wanted = "".join(shown.split())
        if len(wanted) > 3 and lines.count(wanted) == 1:
            return lines.index(wanted) + 1
    return 0
