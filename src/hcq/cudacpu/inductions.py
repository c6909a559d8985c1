"""Takes what counts in loops apart, before a kernel's code becomes regions: where it began, and how far it has come.

Compilers make addresses that step from one round of a loop to the next: each thread has its own, and beside a barrier
they would be kept in memory, and be read from there one by one. How far they have come is the same for all threads,
and what they began with can be computed anew (docs/design/llvm-grid.md, "Regions"). So `p = phi [first], [p + step]`
becomes `q = phi [0], [q + step]`, and each use of `p` becomes `first + q`. What does not live here: regions.
"""

from __future__ import annotations

import re
from typing import Any

from hcq.drivers.cpu import llvm_host
from hcq.drivers.cpu import llvm_text as text
from hcq.drivers.cpu.llvm_text import Instruction

_PHI = re.compile(r"phi (i\d+) ")
_ADD = re.compile(r"= add (?:nuw |nsw )*i\d+ ([^,\s]+), ([^,\s]+)")
_ITEM = "@hcq.local_id("
_DEPTH = 64
_STEPS = 16  # additions in one round


def split(session: llvm_host.Session, llvm_ir: str) -> str:
    """The module with the counting values of its kernels taken apart. Use it holding llvm_host.LOCK."""
    module = session.parse(llvm_ir)
    llvm_host.run_passes(module, "always_inliner", "sroa", "sccp", "dead_code_elimination")
    for function in module.functions:
        if not function.is_declaration:
            _rename(function)
    lines = str(module).split("\n")
    for function in reversed(text.functions(lines)):
        if any(_ITEM in line for line in lines[function.first : function.last + 1]):
            lines[function.first : function.last + 1] = _Kernel(lines[function.first : function.last + 1]).split()
    # The lowering gives these names anew, and LLVM would change one that is there already.
    return re.sub(r"(%|^)hcq\.([abv]\d+)", r"\1\2", "\n".join(lines), flags=re.MULTILINE)


def _rename(function: Any) -> None:
    """The names that llvm_text expects."""
    number = 0
    for at, block in enumerate(function.blocks):
        block.name = f"hcq.b{at}"
        for instruction in block.instructions:
            if str(instruction.type) != "void":
                instruction.name = f"hcq.v{number}"
                number += 1
    for at, argument in enumerate(function.arguments):
        argument.name = f"hcq.a{at}"


class _Kernel:
    """One function, given its lines from `define` to `}`."""

    def __init__(self, lines: list[str]) -> None:
        self.head = lines[0]
        self.blocks = text.blocks(lines)
        self.definitions = {i.value: i for block in self.blocks for i in block if i.value >= 0}
        self.next = max(self.definitions, default=0) + 1

    def split(self) -> list[str]:
        """The lines of the function, rewritten."""
        for number, block in enumerate(self.blocks):
            for phi in [i for i in block if i.op == "phi"]:
                self._take_apart(number, phi)
        lines = [self.head]
        for number, block in enumerate(self.blocks):
            lines += [f"hcq.b{number}:", *(i.text for i in block)]
        return [*lines, "}"]

    def _take_apart(self, number: int, phi: Instruction) -> None:
        found = self._counting(phi)
        if found is None:
            return
        type, first, before, stepped, after, steps = found
        far = self._new()
        for block, user in self._users(phi.value):
            self._replace(block, user, phi.value, f"add {type} {first}, %hcq.v{far}")
        home = next(each for each in self.blocks if stepped in each)
        further = far
        for step in steps:
            made = self._made(f"  %hcq.v{self._new()} = add {type} %hcq.v{further}, {step}")
            home.insert(home.index(stepped), made)
            further = made.value
        line = f"  %hcq.v{far} = phi {type} [ 0, %hcq.b{before} ], [ %hcq.v{further}, %hcq.b{after} ]"
        header = self.blocks[number]
        header[header.index(phi)] = self._made(line)

    def _counting(self, phi: Instruction) -> tuple[str, str, int, Instruction, int, list[str]] | None:
        """Type, first value and where it comes from, the last addition and where that comes from, and the steps; None
        where it doesn't count, or where all threads begin alike."""
        type = _PHI.search(phi.text)
        incoming = phi.incoming()
        if type is None or len(incoming) != 2:
            return None
        for n in (0, 1):
            value, after = incoming[n]
            first, before = incoming[1 - n]
            stepped = self._defined(value)
            steps = self._steps(value, f"%hcq.v{phi.value}", 0)
            if stepped is not None and steps and self._by_thread(first):
                return type[1], first, before, stepped, after, steps
        return None

    def _steps(self, value: str, phi: str, depth: int) -> list[str] | None:
        """What is added to `phi` until `value` is reached, the same for all threads; None where something else is."""
        if value == phi:
            return []
        i = self._defined(value)
        match = _ADD.search(i.text) if i is not None and i.op == "add" and depth < _STEPS else None
        if match is None:
            return None
        for base, step in ((match[1], match[2]), (match[2], match[1])):
            before = self._steps(base, phi, depth + 1)
            if before is not None and step != phi and not self._by_thread(step):
                return [*before, step]
        return None

    def _by_thread(self, value: str) -> bool:
        """Whether a value follows from the thread's number."""
        seen: set[int] = set()
        todo = [value]
        while todo and len(seen) < _DEPTH:
            i = self._defined(todo.pop())
            if i is None or i.value in seen or i.op == "phi":
                continue
            if _ITEM in i.text:
                return True
            seen.add(i.value)
            todo += [f"%hcq.v{v}" for v in i.uses]
        return False

    def _defined(self, value: str) -> Instruction | None:
        return self.definitions.get(int(value[6:])) if value.startswith("%hcq.v") else None

    def _new(self) -> int:
        self.next += 1
        return self.next - 1

    def _made(self, line: str) -> Instruction:
        made = Instruction(line)
        self.definitions[made.value] = made
        return made

    def _users(self, value: int) -> list[tuple[int, Instruction]]:
        return [(n, i) for n, block in enumerate(self.blocks) for i in block if value in i.uses]

    def _replace(self, number: int, user: Instruction, value: int, computed: str) -> None:
        """Computes a value before who uses it; for a phi, at the end of the block that it comes from."""
        if user.op != "phi":
            new = self._made(f"  %hcq.v{self._new()} = {computed}")
            block = self.blocks[number]
            block.insert(block.index(user), new)
            _change(user, re.sub(rf"%hcq\.v{value}(?!\d)", f"%hcq.v{new.value}", user.text))
            return
        for incoming, source in user.incoming():
            if incoming == f"%hcq.v{value}":
                new = self._made(f"  %hcq.v{self._new()} = {computed}")
                self.blocks[source].insert(-1, new)
                before, after = f"[ {incoming}, %hcq.b{source} ]", f"[ %hcq.v{new.value}, %hcq.b{source} ]"
                _change(user, user.text.replace(before, after))


def _change(instruction: Instruction, line: str) -> None:
    instruction.text = line
    instruction.uses = Instruction(line).uses
