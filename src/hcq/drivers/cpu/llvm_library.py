"""What hcq uses of llvmlite.binding, under the same names, called in llvmlite's library directly.

Importing llvmlite.binding declares three hundred functions and imports llvmlite.ir, some 15 ms that a first compile
would wait for (docs/design/llvm-library.md). llvm_host.binding chooses between the two: a release whose library isn't
known goes through llvmlite.binding. Use it holding llvm_host.LOCK. Modules live in contexts of their own, so others may
work with LLVM at the same time through llvmlite.binding.

What does not live here: the declarations (llvm_functions), and what is done with it (llvm_host, llvm_module).
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hcq.drivers.cpu.llvm_functions import lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LINKAGES = (
    ("external", "available_externally", "linkonce_any", "linkonce_odr", "linkonce_odr_autohide", "weak_any")
    + ("weak_odr", "appending", "internal", "private", "dllimport", "dllexport", "external_weak", "ghost", "common")
    + ("linker_private", "linker_private_weak")
)
_VISIBILITIES = ("default", "hidden", "protected")
_PASSES = {
    "add_sroa_pass": "module_AddSROAPass",
    "add_sccp_pass": "module_AddSCCPPass",
    "add_dead_code_elimination_pass": "module_AddDCEPass",
    "add_always_inliner_pass": "module_AddAlwaysInlinerPass",
    "add_post_order_function_attributes_pass": "module_AddPostOrderFunctionAttrsPass",
}


class _Owned:
    """Something of LLVM's that is freed with this object, or by `close`, which may be repeated."""

    def __init__(self, pointer: int, free: Callable[[int], object]) -> None:
        self._as_parameter_ = pointer
        self._free = free

    def close(self) -> None:
        pointer = vars(self).pop("_as_parameter_", None)  # without it ctypes refuses the object
        if pointer is not None:
            self._free(pointer)

    __del__ = close


class _Ref:
    """Something that belongs to a module or a context, and is good for as long as that."""

    __slots__ = ("_as_parameter_",)

    def __init__(self, pointer: int) -> None:
        self._as_parameter_ = pointer


# Modules and what is in them


class Context(_Owned):
    def __init__(self) -> None:
        super().__init__(lib.ContextCreate(), lib.ContextDispose)


class Module(_Owned):
    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, lib.DisposeModule)

    def __str__(self) -> str:
        return _written(lib.PrintModuleToString, self)

    def verify(self) -> None:
        message = ctypes.c_void_p()
        failed = lib.VerifyModule(self, ctypes.byref(message))
        said = _taken(message.value)
        if failed:
            raise RuntimeError(said)

    @property
    def triple(self) -> str:
        inside = ctypes.c_char_p()  # LLVM's own string
        lib.GetTarget(self, ctypes.byref(inside))
        return (inside.value or b"").decode()

    @triple.setter
    def triple(self, triple: str) -> None:
        lib.SetTarget(self, triple.encode())

    def _set_data_layout(self, layout: str) -> None:
        lib.SetDataLayout(self, layout.encode())

    data_layout = property(None, _set_data_layout)

    @property
    def functions(self) -> Iterator[Function]:
        return _each(self, Function, "ModuleFunctionsIter", "FunctionsIterNext", "DisposeFunctionsIter")

    @property
    def global_variables(self) -> Iterator[Global]:
        return _each(self, Global, "ModuleGlobalsIter", "GlobalsIterNext", "DisposeGlobalsIter")

    @property
    def struct_types(self) -> Iterator[Type]:
        return _each(self, Type, "ModuleTypesIter", "TypesIterNext", "DisposeTypesIter")

    def get_global_variable(self, name: str) -> Global:
        pointer = lib.GetNamedGlobalVariable(self, name.encode())
        if not pointer:
            raise NameError(name)
        return Global(pointer)


class Value(_Ref):
    __slots__ = ()

    def __str__(self) -> str:
        return _written(lib.PrintValueToString, self)

    @property
    def name(self) -> str:
        name: bytes = lib.GetValueName(self)
        return name.decode()

    @name.setter
    def name(self, name: str) -> None:
        lib.SetValueName(self, name.encode())

    @property
    def type(self) -> Type:
        return Type(lib.TypeOf(self))


class Global(Value):
    __slots__ = ()

    @property
    def global_value_type(self) -> Type:
        return Type(lib.GlobalGetValueType(self))

    @property
    def is_declaration(self) -> bool:
        return bool(lib.IsDeclaration(self))

    @property
    def linkage(self) -> SimpleNamespace:
        return SimpleNamespace(name=_LINKAGES[lib.GetLinkage(self)])

    @linkage.setter
    def linkage(self, name: str) -> None:
        lib.SetLinkage(self, _LINKAGES.index(name))

    def _set_visibility(self, name: str) -> None:
        lib.SetVisibility(self, _VISIBILITIES.index(name))

    visibility = property(None, _set_visibility)


class Function(Global):
    __slots__ = ()

    @property
    def arguments(self) -> Iterator[Argument]:
        return _each(self, Argument, "FunctionArgumentsIter", "ArgumentsIterNext", "DisposeArgumentsIter")

    @property
    def blocks(self) -> Iterator[Block]:
        return _each(self, Block, "FunctionBlocksIter", "BlocksIterNext", "DisposeBlocksIter")

    @property
    def attributes(self) -> Iterator[bytes]:
        names = "FunctionAttributesIter", "AttributeListIterNext", "DisposeAttributeListIter"
        return _each(self, _taken_bytes, *names)

    def add_function_attribute(self, name: str) -> None:
        kind = lib.GetEnumAttributeKindForName(name.encode(), len(name))
        if not kind:
            raise ValueError(f"LLVM knows no attribute {name!r}")
        lib.AddFunctionAttr(self, kind)


class Argument(Value):
    __slots__ = ()

    @property
    def attributes(self) -> Iterator[bytes]:
        return _each(self, _taken_bytes, "ArgumentAttributesIter", "AttributeSetIterNext", "DisposeAttributeSetIter")


class Block(Value):
    __slots__ = ()

    @property
    def instructions(self) -> Iterator[Value]:
        return _each(self, Value, "BlockInstructionsIter", "InstructionsIterNext", "DisposeInstructionsIter")


class Type(_Ref):
    __slots__ = ()

    def __str__(self) -> str:
        return _taken(lib.PrintType(self))

    @property
    def name(self) -> str:
        return _taken(lib.GetTypeName(self))

    @property
    def is_struct(self) -> bool:
        return bool(lib.TypeIsStruct(self))

    @property
    def is_function_vararg(self) -> bool:
        return bool(lib.IsFunctionVararg(self))

    def get_function_return(self) -> Type:
        return Type(lib.GetReturnType(self))


# Processors and passes


class Target(_Ref):
    __slots__ = ("_triple",)

    _triple: bytes

    @classmethod
    def from_triple(cls, triple: str) -> Target:
        message = ctypes.c_void_p()
        pointer = lib.GetTargetFromTriple(triple.encode(), ctypes.byref(message))
        said = _taken(message.value)
        if not pointer:
            raise RuntimeError(said)
        target = cls(pointer)
        target._triple = triple.encode()
        return target

    def create_target_machine(
        self, cpu: str = "", features: str = "", opt: int = 2, reloc: str = "default", codemodel: str = "jitdefault"
    ) -> Machine:
        words = (self._triple, cpu.encode(), features.encode(), opt, reloc.encode(), codemodel.encode(), 0, 0, b"")
        pointer = lib.CreateTargetMachine(self, *words)
        if not pointer:
            raise RuntimeError("Cannot create target machine")
        return Machine(pointer)


class Machine(_Owned):
    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, lib.DisposeTargetMachine)

    @property
    def target_data(self) -> Data:
        return Data(lib.CreateTargetMachineData(self))

    def emit_object(self, module: Any) -> bytes:
        return self._emit(module, 1)

    def emit_assembly(self, module: Any) -> str:
        return self._emit(module, 0).decode()

    def _emit(self, module: Any, as_object: int) -> bytes:
        message = ctypes.c_void_p()
        memory = lib.TargetMachineEmitToMemory(self, module, as_object, ctypes.byref(message))
        said = _taken(message.value)
        if not memory:
            raise RuntimeError(said)
        try:
            return ctypes.string_at(lib.GetBufferStart(memory), lib.GetBufferSize(memory))
        finally:
            lib.DisposeMemoryBuffer(memory)


class Data(_Owned):
    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, lib.DisposeTargetData)

    def __str__(self) -> str:
        return _written(lib.CopyStringRepOfTargetData, self)

    def get_abi_size(self, kind: Type) -> int:
        return int(lib.ABISizeOfType(self, kind))

    def get_abi_alignment(self, kind: Type) -> int:
        return int(lib.ABIAlignmentOfType(self, kind))


class TuningOptions(_Owned):
    def __init__(self, speed_level: int) -> None:
        super().__init__(lib.CreatePipelineTuningOptions(), lib.DisposePipelineTuningOptions)
        self.speed_level = speed_level

    loop_interleaving = property(None, lambda self, on: lib.PTOSetLoopInterleaving(self, on))
    loop_vectorization = property(None, lambda self, on: lib.PTOSetLoopVectorization(self, on))
    slp_vectorization = property(None, lambda self, on: lib.PTOSetSLPVectorization(self, on))
    loop_unrolling = property(None, lambda self, on: lib.PTOSetLoopUnrolling(self, on))


class PassBuilder(_Owned):
    def __init__(self, machine: Any, options: TuningOptions) -> None:
        super().__init__(lib.CreatePassBuilder(machine, options), lib.DisposePassBuilder)
        self._kept = machine, options

    def getModulePassManager(self) -> PassManager:
        return PassManager(lib.buildPerModuleDefaultPipeline(self, self._kept[1].speed_level))


class PassManager(_Owned):
    def __init__(self, pointer: int) -> None:
        super().__init__(pointer, lib.DisposeNewModulePassManger)

    def __getattr__(self, name: str) -> Callable[[], object]:
        if name not in _PASSES:
            raise AttributeError(name)
        return lambda: getattr(lib, _PASSES[name])(self)

    def run(self, module: Module, builder: PassBuilder) -> None:
        lib.RunNewModulePassManager(self, module, builder)


# The names of llvmlite.binding

context = SimpleNamespace(create_context=Context)


def parse_assembly(text: str, within: Context) -> Module:
    """RuntimeError with LLVM's message where it isn't LLVM IR."""
    message = ctypes.c_void_p()
    pointer = lib.ParseAssembly(within, text.encode(), ctypes.byref(message))
    if message.value:
        said = _taken(message.value)
        if pointer:
            Module(pointer).close()
        raise RuntimeError(f"LLVM IR parsing error\n{said}")
    return Module(pointer)


def create_pass_builder(machine: Machine, options: TuningOptions) -> PassBuilder:
    return PassBuilder(machine, options)


def create_pipeline_tuning_options(speed_level: int = 2) -> TuningOptions:
    return TuningOptions(speed_level)


def create_new_module_pass_manager() -> PassManager:
    return PassManager(lib.CreateNewModulePassManager())


def initialize_native_target() -> None:
    lib.InitializeNativeTarget()


def initialize_native_asmprinter() -> None:
    lib.InitializeNativeAsmPrinter()


def initialize_native_asmparser() -> None:
    lib.InitializeNativeAsmParser()


def initialize_all_targets() -> None:
    lib.InitializeAllTargetInfos()
    lib.InitializeAllTargets()
    lib.InitializeAllTargetMCs()


def initialize_all_asmprinters() -> None:
    lib.InitializeAllAsmPrinters()


def get_process_triple() -> str:
    return _written(lib.GetProcessTriple)


def get_host_cpu_name() -> str:
    return _written(lib.GetHostCPUName)


def get_host_cpu_features() -> SimpleNamespace:
    listed = sorted(filter(None, _written(lib.GetHostCPUFeatures).split(",")), key=lambda feature: feature[1:])
    return SimpleNamespace(flatten=lambda: ",".join(listed))


# Helpers


def _each(owner: Any, made: Callable[[int], Any], begin: str, step: str, end: str) -> Iterator[Any]:
    """What an iterator of the library goes over."""
    iterator = getattr(lib, begin)(owner)
    following = getattr(lib, step)
    try:
        while pointer := following(iterator):
            yield made(pointer)
    finally:
        getattr(lib, end)(iterator)


def _written(function: Callable[..., Any], *arguments: Any) -> str:
    """The text that a function writes to its last argument."""
    text = ctypes.c_void_p()
    function(*arguments, ctypes.byref(text))
    return _taken(text.value)


def _taken(pointer: int | None) -> str:
    """A string of the library's, which is freed; '' for none."""
    return _taken_bytes(pointer).decode()


def _taken_bytes(pointer: int | None) -> bytes:
    if not pointer:
        return b""
    try:
        return ctypes.string_at(pointer)
    finally:
        lib.DisposeString(pointer)
