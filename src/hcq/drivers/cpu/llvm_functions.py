"""The functions of llvmlite's library that hcq calls, each declared when it is first called.

It is the library's own interface, and may differ from one release to the next: RELEASES are those whose declarations
(llvmlite/binding/*.py) were compared with these. What does not live here: what the functions are for (llvm_library).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RELEASES = ("0.50.",)
"""How the versions begin whose library is known."""

# By name, what a function gives and takes: a pointer (p), text (s), int (i), unsigned (u), 64 bits (l), size (z),
# bool (b), nothing.
_FUNCTIONS = {
    "DisposeString": ":p",
    "ContextCreate": "p:",
    "ContextDispose": ":p",
    "ParseAssembly": "p:psp",
    "VerifyModule": "b:pp",
    "PrintModuleToString": ":pp",
    "DisposeModule": ":p",
    "GetTarget": ":pp",
    "SetTarget": ":ps",
    "SetDataLayout": ":ps",
    "GetNamedGlobalVariable": "p:ps",
    "ModuleFunctionsIter": "p:p",
    "FunctionsIterNext": "p:p",
    "DisposeFunctionsIter": ":p",
    "ModuleGlobalsIter": "p:p",
    "GlobalsIterNext": "p:p",
    "DisposeGlobalsIter": ":p",
    "ModuleTypesIter": "p:p",
    "TypesIterNext": "p:p",
    "DisposeTypesIter": ":p",
    "FunctionBlocksIter": "p:p",
    "BlocksIterNext": "p:p",
    "DisposeBlocksIter": ":p",
    "FunctionArgumentsIter": "p:p",
    "ArgumentsIterNext": "p:p",
    "DisposeArgumentsIter": ":p",
    "BlockInstructionsIter": "p:p",
    "InstructionsIterNext": "p:p",
    "DisposeInstructionsIter": ":p",
    "FunctionAttributesIter": "p:p",
    "AttributeListIterNext": "p:p",
    "DisposeAttributeListIter": ":p",
    "ArgumentAttributesIter": "p:p",
    "AttributeSetIterNext": "p:p",
    "DisposeAttributeSetIter": ":p",
    "PrintValueToString": ":pp",
    "GetValueName": "s:p",
    "SetValueName": ":ps",
    "TypeOf": "p:p",
    "GlobalGetValueType": "p:p",
    "IsDeclaration": "i:p",
    "GetLinkage": "i:p",
    "SetLinkage": ":pi",
    "SetVisibility": ":pi",
    "GetEnumAttributeKindForName": "u:sz",
    "AddFunctionAttr": ":pu",
    "PrintType": "p:p",
    "GetTypeName": "p:p",
    "TypeIsStruct": "b:p",
    "GetReturnType": "p:p",
    "IsFunctionVararg": "b:p",
    "InitializeNativeTarget": "i:",
    "InitializeNativeAsmPrinter": "i:",
    "InitializeNativeAsmParser": "i:",
    "InitializeAllTargetInfos": ":",
    "InitializeAllTargets": ":",
    "InitializeAllTargetMCs": ":",
    "InitializeAllAsmPrinters": ":",
    "GetProcessTriple": ":p",
    "GetHostCPUName": ":p",
    "GetHostCPUFeatures": "i:p",
    "GetTargetFromTriple": "p:sp",
    "CreateTargetMachine": "p:psssissiis",
    "DisposeTargetMachine": ":p",
    "CreateTargetMachineData": "p:p",
    "DisposeTargetData": ":p",
    "CopyStringRepOfTargetData": ":pp",
    "ABISizeOfType": "l:pp",
    "ABIAlignmentOfType": "l:pp",
    "TargetMachineEmitToMemory": "p:ppip",
    "GetBufferStart": "p:p",
    "GetBufferSize": "z:p",
    "DisposeMemoryBuffer": ":p",
    "CreatePipelineTuningOptions": "p:",
    "DisposePipelineTuningOptions": ":p",
    "PTOSetLoopInterleaving": ":pb",
    "PTOSetLoopVectorization": ":pb",
    "PTOSetSLPVectorization": ":pb",
    "PTOSetLoopUnrolling": ":pb",
    "CreatePassBuilder": "p:pp",
    "DisposePassBuilder": ":p",
    "buildPerModuleDefaultPipeline": "p:pi",
    "CreateNewModulePassManager": "p:",
    "DisposeNewModulePassManger": ":p",  # spelled so there
    "RunNewModulePassManager": ":ppp",
    "module_AddSROAPass": ":p",
    "module_AddSCCPPass": ":p",
    "module_AddDCEPass": ":p",
    "module_AddAlwaysInlinerPass": ":p",
    "module_AddPostOrderFunctionAttrsPass": ":p",
}
_TYPES: dict[str, Any] = {
    "": None,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "l": ctypes.c_longlong,
    "b": ctypes.c_bool,
}
# What takes long is called without the interpreter's lock; the rest takes less than giving that away and back.
_LONG = frozenset(
    ("ParseAssembly", "VerifyModule", "PrintModuleToString", "RunNewModulePassManager", "TargetMachineEmitToMemory")
    + ("InitializeAllTargets", "CreatePassBuilder", "buildPerModuleDefaultPipeline", "CreateTargetMachine")
)


class Functions:
    """The functions by their names without LLVMPY_. Use it holding llvm_host.LOCK."""

    def __init__(self) -> None:
        self._with_lock: Any = None
        self._without: Any = None

    def load(self, path: str) -> None:
        """Say where the library is, before anything is called. OSError where it can't be loaded."""
        self._without, self._with_lock = ctypes.CDLL(path), ctypes.PyDLL(path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        function = getattr(self._without if name in _LONG else self._with_lock, f"LLVMPY_{name}")
        result, _, arguments = _FUNCTIONS[name].partition(":")
        function.restype = _TYPES[result]
        function.argtypes = [_TYPES[kind] for kind in arguments]
        setattr(self, name, function)
        declared: Callable[..., Any] = function
        return declared


lib = Functions()
