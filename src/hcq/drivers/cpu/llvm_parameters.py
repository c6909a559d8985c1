"""Parameters of functions in LLVM IR that may be launched: which there can be, and what is done to memory by them.

What does not live here: how the library keeps them (library), and the code that reads them (llvm_module).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.drivers.cpu.library import Param, ParamKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_VALUES = {
    "ptr": ParamKind.POINTER,
    "ptr addrspace(1)": ParamKind.POINTER,
    "i1": ParamKind.BOOLEAN,
    "i8": ParamKind.BITS8,
    "i16": ParamKind.BITS16,
    "i32": ParamKind.BITS32,
    "i64": ParamKind.BITS64,
    "half": ParamKind.F16,
    "bfloat": ParamKind.BF16,
    "float": ParamKind.F32,
    "double": ParamKind.F64,
}
# An extension says what the sign is.
_SIGNLESS = (ParamKind.BITS8, ParamKind.BITS16, ParamKind.BITS32, ParamKind.BITS64)
_EXTENDED = {
    "signext": dict(zip(_SIGNLESS, (ParamKind.I8, ParamKind.I16, ParamKind.I32, ParamKind.I64), strict=True)),
    "zeroext": dict(zip(_SIGNLESS, (ParamKind.U8, ParamKind.U16, ParamKind.U32, ParamKind.U64), strict=True)),
}
_BY_MEMORY = {"byval", "byref", "sret", "inalloca", "preallocated", "nest", "swiftself", "swifterror", "swiftasync"}


def parameters(function: Any, accesses: Sequence[str]) -> tuple[str, tuple[Param, ...]]:
    """Why a function can't be launched ('' if it can), and its parameters."""
    kind = function.global_value_type
    returns = str(kind.get_function_return())
    if returns != "void":
        return f"it returns {returns}; a kernel returns nothing", ()
    if kind.is_function_vararg:
        return "it takes a varying number of arguments", ()
    params: list[Param] = []
    for position, argument in enumerate(function.arguments):
        attributes = {a.decode().split("(")[0].split("=")[0] for a in argument.attributes}
        shown = str(argument.type)
        param = _VALUES.get(shown)
        if param is None:
            return (
                f"parameter {position + 1} is {shown}; parameters are ptr, i1 to i64, half, bfloat, float, double",
                (),
            )
        if by := sorted(attributes & _BY_MEMORY):
            return f"parameter {position + 1} is {by[0]}", ()
        if param is ParamKind.POINTER and params and params[-1].kind is not ParamKind.POINTER:
            return f"parameter {position + 1} is a pointer after values; pointers come first", ()
        for extension in attributes & _EXTENDED.keys():
            param = _EXTENDED[extension].get(param, param)
        done = accesses[position] if param is ParamKind.POINTER and accesses else None
        params.append(Param(param, argument.name, done))
    return "", tuple(params)


def access(argument: Any) -> str:
    """One of library.ACCESSES for a pointer, by its attributes."""
    attributes = {a.decode().split("(")[0] for a in argument.attributes}
    if attributes & {"readonly", "readnone"}:
        return "r"
    return "w" if "writeonly" in attributes else "rw"
