"""The parameters of a kernel, as their annotations say. What does not live here: binding arguments to them (launch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from hcq.errors import CompileError
from hcq.kernels import types
from hcq.kernels.builtins import ConstantForm, PointerForm
from hcq.kernels.frontend import source as sources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FunctionType

NONE: Final = object()
"""A parameter without a default."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `type` is the scalar, or what the pointer points to; None: as what is passed, or a constant."""

    name: str
    kind: Literal["scalar", "pointer", "constant"]
    type: types.Scalar | None
    default: Any = NONE


def parameters(function: FunctionType, names: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Of a kernel's function. `names` are those of the function around, for annotations that are text.

    Raises CompileError at the parameter that is at fault.
    """
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & 0x0C:
        raise _error(function, code.co_varnames[count], "a kernel has a fixed number of parameters")
    defaults = dict(
        zip(code.co_varnames[: code.co_argcount][::-1], (function.__defaults__ or ())[::-1], strict=False),
        **(function.__kwdefaults__ or {}),
    )
    result = []
    for name in code.co_varnames[:count]:
        annotation = function.__annotations__.get(name, NONE)
        if isinstance(annotation, str):
            annotation = _evaluate(function, name, annotation, names)
        result.append(_parameter(function, name, annotation, defaults.get(name, NONE)))
    return tuple(result)


def _parameter(function: FunctionType, name: str, annotation: Any, default: Any) -> Parameter:
    if isinstance(annotation, types.Scalar):
        return Parameter(name, "scalar", annotation, default)
    if isinstance(annotation, ConstantForm):
        return Parameter(name, "constant", None, default)
    if isinstance(annotation, (types.Pointer, PointerForm)) and default is not NONE:
        raise _error(function, name, "a buffer has no default")
    if isinstance(annotation, PointerForm):
        return Parameter(name, "pointer", None)
    if isinstance(annotation, types.Pointer):
        if annotation.space != "global":
            raise _error(function, name, f"a kernel's parameter points to global memory, not {annotation.space}")
        return Parameter(name, "pointer", annotation.element)
    hint = "hcq.f32 (a number), hcq.ptr[hcq.f32] (a buffer), hcq.ptr (a buffer of any type), hcq.constexpr (a constant)"
    if annotation is NONE:
        raise _error(function, name, f"the parameter {name} has no type", f"write one behind it: {hint}")
    raise _error(function, name, f"{name}: {annotation!r} is no type of a kernel's parameter", f"expected {hint}")


def _evaluate(function: FunctionType, name: str, text: str, names: Mapping[str, Any]) -> Any:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    known = dict(names)
    for key, cell in cells.items():
        try:
            known[key] = cell.cell_contents
        except ValueError:
            continue
    try:
        return eval(text, function.__globals__, known)
    except Exception as error:
        raise _error(function, name, f"the type of {name}, {text}, is not known: {error}") from None


def _error(function: FunctionType, name: str, message: str, hint: str = "") -> CompileError:
    source = sources.read(function)
    arguments = source.tree.args
    nodes = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    node = next((each for each in nodes if each is not None and each.arg == name), source.tree)
    return sources.refusal(source.locate(node), message, hint, source.text)
