"""What names mean inside one function: nested scopes, and names made unique."""

from __future__ import annotations

from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.nodes import Register, Symbol


class Scope:
    """One pair of braces."""

    def __init__(self) -> None:
        self.registers: dict[str, Register | tuple[Register, ...]] = {}
        self.symbols: dict[str, str] = {}  # variables and labels: the name in the text -> the unique one
        self.labels: set[str] = set()
        self.unresolved: list[Symbol] = []


class Scopes:
    """The scopes that are open, the function's own first."""

    def __init__(self) -> None:
        self._open = [Scope()]
        self._taken: set[str] = set()

    @property
    def depth(self) -> int:
        return len(self._open)

    def enter(self) -> None:
        self._open.append(Scope())

    def leave(self) -> None:
        """End a scope: symbols that it does not define are looked for in the one around it."""
        scope = self._open.pop()
        for symbol in scope.unresolved:
            if symbol.name in scope.labels:
                symbol.name = scope.symbols[symbol.name]
            elif self._open:
                self._open[-1].unresolved.append(symbol)

    def declare(self, name: str, line: int) -> str:
        """A variable of the innermost scope; returns its unique name."""
        scope = self._open[-1]
        if name in scope.symbols or name in scope.registers:
            raise PtxError(f"{name} is declared twice in one scope", line)
        scope.symbols[name] = self._unique(name)
        return scope.symbols[name]

    def label(self, name: str, line: int) -> str:
        """A label of the innermost scope, which may have been used before."""
        unique = self.declare(name, line)
        self._open[-1].labels.add(name)
        return unique

    def register(self, name: str, type: str, lanes: int, line: int) -> list[Register]:
        """A register (or, with lanes, the registers of a vector) of the innermost scope."""
        scope = self._open[-1]
        if name in scope.registers or name in scope.symbols:
            raise PtxError(f"register {name} is declared twice in one scope", line)
        unique = self._unique(name)
        if lanes == 1:
            made = [Register(unique, type)]
            scope.registers[name] = made[0]
        else:
            made = [Register(f"{unique}.{'xyzw'[n] if lanes <= 4 else n}", type) for n in range(lanes)]
            scope.registers[name] = tuple(made)
        return made

    def find_register(self, name: str) -> Register | tuple[Register, ...] | None:
        """The register of this name, as seen from the innermost scope."""
        for scope in reversed(self._open):
            if name in scope.registers:
                return scope.registers[name]
            if name in scope.symbols:
                return None
        return None

    def symbol(self, name: str) -> Symbol:
        """A symbol of this name: a variable that is known, else what may turn out to be a label or of the module."""
        for scope in reversed(self._open):
            if name in scope.symbols and name not in scope.labels:
                return Symbol(scope.symbols[name])
        symbol = Symbol(name)
        self._open[-1].unresolved.append(symbol)
        return symbol

    def _unique(self, name: str) -> str:
        unique, count = name, 0
        while unique in self._taken:
            count += 1
            unique = f"{name}.{count}"
        self._taken.add(unique)
        return unique
