"""Internal functions that translated code calls: each is written once, and goes into the modules that want it.

What does not live here: the functions themselves (rounding.py, wide.py, approximate.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Code(Protocol):
    """Where instructions are put: a PTX function that is being translated, or a helper's body."""

    def op(self, text: str) -> str:
        """Adds one instruction that has a result, and gives the result's name."""
        ...

    def helper(self, name: str, text: str) -> None:
        """The whole text of a function that the module needs once."""
        ...

    def declare(self, text: str) -> None:
        """A declaration that the module needs once."""
        ...


class Body:
    """One helper while it is written: a straight line of instructions, and what they want from the module."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.declarations: dict[str, None] = {}

    def op(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Adds one instruction without a result."""
        self.lines.append(text)

    def helper(self, name: str, text: str) -> None:
        self.helpers[name] = text

    def declare(self, text: str) -> None:
        self.declarations[text] = None


_written: dict[str, Body] = {}  # by symbol; texts depend on nothing but the name, so threads may write one twice


PURE = "nounwind willreturn memory(none)"
APART = f"{PURE} noinline"  # of what is long and rare, and never written into its callers


def want(
    code: Code, name: str, result: str, parameters: str, write: Callable[[Body], str], attributes: str = PURE
) -> str:
    """The symbol of helper `name`, which is put into the module with what it calls.

    `write` fills a body and gives the value that is returned; `parameters` as in IR: "double %a, i1 %up".
    """
    symbol = f"@help.{name}"
    body = _written.get(symbol)
    if body is None:
        body = Body()
        value = write(body)
        lines = "\n".join(f"  {line}" for line in body.lines)
        body.helper(
            symbol,
            f"define internal {result} {symbol}({parameters}) {attributes} {{\n{lines}\n  ret {result} {value}\n}}\n",
        )
        _written[symbol] = body
    for declaration in body.declarations:
        code.declare(declaration)
    for each, text in body.helpers.items():
        code.helper(each, text)
    return symbol


def call(code: Code, result: str, symbol: str, *arguments: str) -> str:
    """Calls `symbol`; arguments are typed: "double %x"."""
    return code.op(f"call {result} {symbol}({', '.join(arguments)})")


def intrinsic(code: Code, name: str, kind: str, *arguments: str) -> str:
    """llvm.`name`.`kind` of arguments that are all of the type `kind` names."""
    ir = {"f64": "double", "f32": "float"}.get(kind, kind)
    symbol = f"@llvm.{name}.{kind}"
    code.declare(f"declare {ir} {symbol}({', '.join([ir] * len(arguments))})")
    return call(code, ir, symbol, *(f"{ir} {each}" for each in arguments))


def leading_zeros(code: Code, kind: str, value: str) -> str:
    """The zero bits above the highest one; all bits for 0."""
    code.declare(f"declare {kind} @llvm.ctlz.{kind}({kind}, i1)")
    return call(code, kind, f"@llvm.ctlz.{kind}", f"{kind} {value}", "i1 false")
