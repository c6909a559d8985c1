"""`hcq kernel show`: what a portable kernel becomes, in any language that kernels are written in."""

from __future__ import annotations

import ast
import sys
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq.cli.output import DONE, Failure, Mistake
from hcq.errors import CompileError, UnknownDevice

if TYPE_CHECKING:
    from hcq.kernels.launch import Kernel


def show(kernel: str, target: str, choices: list[str] | None) -> int:
    """Print the text of a kernel in the language or for the device `target`."""
    found = _find(kernel)
    try:
        text = found.source(target, **_choices(found, choices or []))
        if isinstance(text, bytes):
            from hcq.kernels.lower.spirv.text import disassemble

            text = disassemble(text)
        print(text, end="")
    except CompileError as error:
        raise Failure(str(error)) from None
    except UnknownDevice as error:
        from hcq.kernels.lower import LANGUAGES

        raise Mistake(f"--target {target} is no language ({', '.join(LANGUAGES)}), nor a device: {error}") from None
    except TypeError as error:
        raise Mistake(f"{error} (write it behind the kernel)") from None
    return DONE


def _find(text: str) -> Kernel:
    from hcq.kernels.launch import Kernel

    where, colon, name = text.rpartition(":")
    if not colon:
        raise Mistake(f"{text!r} names no kernel: expected FILE.py:NAME or package.module:NAME")
    module = _module(where)
    found = getattr(module, name, None)
    if not isinstance(found, Kernel):
        known = sorted(key for key, value in vars(module).items() if isinstance(value, Kernel))
        raise Mistake(f"{where} has no kernel {name}: it has {', '.join(known) or 'none'}")
    return found


def _module(where: str) -> Any:
    """A module by its file or its name. Importing it runs it."""
    path = Path(where)
    if path.suffix != ".py":
        try:
            return import_module(where)
        except ModuleNotFoundError as error:
            raise Mistake(f"{where} can't be imported: {error}") from None
    if not path.is_file():
        raise Mistake(f"there is no file {where}")
    spec = util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise Mistake(f"{where} is no Python file")
    module = util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _choices(kernel: Kernel, given: list[str]) -> dict[str, Any]:
    """Types of untyped pointers, and constants: `x=f32`, `size=64`, `mode="fast"`, `sums=f64`."""
    from hcq.kernels import types

    known = {each.name: each for each in types.SCALARS}
    result: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            raise Mistake(f"{each!r} is no choice: expected NAME=TYPE or NAME=VALUE, such as x=f32")
        if text.removeprefix("hcq.") in known:
            result[name] = known[text.removeprefix("hcq.")]
            continue
        try:
            result[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise Mistake(f"{each!r}: {text!r} is neither a type ({', '.join(known)}) nor a Python constant") from None
    return result
