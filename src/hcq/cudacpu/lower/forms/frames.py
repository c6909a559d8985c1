"""What the names of one PTX function mean where its instructions are being written.

A function that is written into another one (because it suspends) is a frame of its own there: `prefix` keeps its labels
apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.cudacpu.lower import layout
from hcq.cudacpu.lower.types import llvm
from hcq.cudacpu.ptx.nodes import Function, Label, Prototype, Register, Symbol, Variable

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter
    from hcq.cudacpu.lower.forms.analysis import Facts


@dataclass(slots=True)
class Place:
    """Where a variable is: `pointer` for those of space global, const and param; `offset` into shared memory or into
    the thread's local memory. A local variable of a function that is really called is at `pointer`."""

    space: str
    pointer: str = ""
    offset: int = 0


class Frame:
    """One PTX function inside one LLVM function."""

    def __init__(
        self, e: Emitter, function: Function, facts: Facts, inferred: dict[str, str], prefix: str, returns: str
    ) -> None:
        self.function = function
        self.yields = facts.yields  # lines of branches before which other threads get their turn
        self.labels = {each.name for each in function.body or [] if isinstance(each, Label)}
        self.returns = returns  # label where `ret` goes
        self.places: dict[str, Place] = {}
        self._e = e
        self._inferred = inferred
        self._prefix = prefix
        self._registers: dict[str, tuple[str, str]] = {}
        self.unsettled = e.unit.unsettled(function)  # registers whose NaNs get their bits when they are read

    def register(self, register: Register) -> tuple[str, str]:
        """Slot and LLVM type of a register."""
        found = self._registers.get(register.name)
        if found is None:
            type = self._inferred.get(register.name) or llvm(register.type)
            found = self._e.slot(type, name=f"r{register.name.lstrip('%')}"), type
            self._registers[register.name] = found
        return found

    def room(self, variable: Variable) -> str:
        """A slot for a variable's bytes."""
        size = max(layout.bytes_of(variable), 1)
        layout.check_space(variable.name, "local", size, variable.line)
        return self._e.slot(f"[{size} x i8]", max(layout.alignment(variable), 8), "var")

    def copy_in(self, name: str, pointer: str) -> None:
        """Set a register from memory: a parameter that was declared as one."""
        slot, stored = self.register(Register(name, self.function.registers[name]))
        value = self._e.op(f"load {stored}, ptr {pointer}")
        self._e.do(f"store {stored} {value}, ptr {slot}")

    def copy_out(self, name: str, pointer: str) -> None:
        """Write a register to memory: a result that was declared as one."""
        slot, stored = self.register(Register(name, self.function.registers[name]))
        value = self._e.op(f"load {stored}, ptr {slot}")
        self._e.do(f"store {stored} {value}, ptr {pointer}")

    def label(self, name: str) -> str:
        """A PTX label as LLVM has it."""
        return f"L.{self._prefix}{name}"

    def place(self, symbol: Symbol) -> Place | None:
        """The variable of this name, of the function or of the module."""
        return self.places.get(symbol.name) or self._e.unit.place(symbol.name)

    def prototype(self, name: str) -> Prototype | None:
        """A .callprototype of this function."""
        return self.function.prototypes.get(name)

    def symbol_value(self, e: Emitter, symbol: Symbol) -> str:
        """What `mov` gives for a name: the address in the variable's own space, 64 bits wide."""
        place = self.place(symbol)
        if place is None:
            function = e.unit.address_of_function(symbol.name)
            if function is None:
                e.wrong(f"{symbol.name} is not declared")
            return e.op(f"ptrtoint ptr {function} to i64")
        if place.space in ("shared", "local") and not place.pointer:
            return str(place.offset + symbol.offset)
        pointer = place.pointer
        if pointer == "%params":  # of a kernel
            pointer, offset = e.context.params(e), place.offset
        else:
            offset = 0
        value = e.op(f"ptrtoint ptr {pointer} to i64")
        if place.space == "local":
            value = e.op(f"sub i64 {value}, {e.op(f'ptrtoint ptr {e.context.local(e)} to i64')}")
        return e.op(f"add i64 {value}, {offset + symbol.offset}") if offset + symbol.offset else value
