"""Shared and local memory of a kernel: where each variable of its functions is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower import layout
from hcq.cudacpu.lower.forms.frames import Frame, Place
from hcq.cudacpu.ptx.nodes import Function

if TYPE_CHECKING:
    from hcq.cudacpu.lower.module import Unit


class KernelMemory:
    """Shared and local memory of one kernel, as it is given out to the variables of the functions in it."""

    def __init__(self, unit: Unit, kernel: Function) -> None:
        self.local = 0
        reached = self._reached(unit, kernel.name, {})
        used = {name for each in reached for name in unit.facts[each].symbols}
        variables = [("", each) for each in unit.module.variables if each.name in used]
        variables += [(name, each) for name in reached for each in unit.functions[name].variables]
        variables = [(owner, each) for owner, each in variables if each.space == "shared"]
        dynamic = [(owner, each) for owner, each in variables if not layout.bytes_of(each)]
        self._places: dict[tuple[str, str], Place] = {}
        end = 0
        for owner, each in variables:
            start = layout.up(end, layout.alignment(each))
            self._places[owner, each.name] = Place("shared", "", start)
            end = start + layout.bytes_of(each)
        layout.check_space(kernel.name, "shared", end, kernel.line)
        self.shared = layout.up(end, max([16, *(layout.alignment(each) for _, each in dynamic)])) if variables else 0
        for owner, each in dynamic:
            self._places[owner, each.name].offset = self.shared

    def place(self, frame: Frame) -> None:
        """Give the variables of a frame their places; a shared one has one, however often its function is written."""
        for (owner, name), place in self._places.items():
            if owner == frame.function.name or (not owner and name not in frame.places):
                frame.places[name] = place
        for each in frame.function.variables:
            if each.space == "local":
                start = layout.up(self.local, layout.alignment(each))
                self.local = start + layout.bytes_of(each)
                layout.check_space(frame.function.name, "local", self.local, each.line)
                frame.places[each.name] = Place("local", "", start)
            elif each.space == "param":
                frame.places[each.name] = Place("param", frame.room(each))

    def _reached(self, unit: Unit, name: str, seen: dict[str, None]) -> dict[str, None]:
        if name not in seen and name in unit.facts:
            seen[name] = None
            for callee in unit.facts[name].calls:
                self._reached(unit, callee, seen)
        return seen
