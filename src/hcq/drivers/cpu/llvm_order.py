"""Whether LLVM may be told that a region's accesses are independent between items, and keeps their order within each.

`llvm.loop.parallel_accesses` says that no iteration of a loop depends on another. The loop vectoriser then asks for no
dependences at all, also not within an iteration, when it gathers accesses of one stride into a group (out[2*i],
out[2*i+1]): loads of a group move up to its first, stores down to its last, past whatever stands between (LLVM 22,
InterleavedAccessInfo). So regions in which something does stand between are not marked. Everything that isn't known
to move by a single element, by none, or by no constant, counts as such an access.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from hcq.drivers.cpu import llvm_flow as flow
from hcq.drivers.cpu import llvm_text as text

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.drivers.cpu.llvm_regions import Analysis, Region
    from hcq.drivers.cpu.llvm_text import Instruction

# How something moves from one item to the next: by a constant, certainly by no constant, or nobody knows.
Stride = int | Literal["far", "odd"]

_LARGEST_GROUP = 8  # accesses in a group at most, and so elements in its stride
_FLAGS = re.compile(r"(?:inbounds|nuw|nusw|nsw|nneg|exact|disjoint|inrange\([^)]*\)) ")
_ITEM = re.compile(r"@hcq\.local_id\((?:i32 )(?:noundef )?0\)")
_IDS = re.compile(r"@hcq\.(?:group_id|local_id|local_size|num_groups)\(")
_CAST = re.compile(r"(?:zext|sext|trunc|freeze|bitcast|addrspacecast) .*?([^ ]+)(?: to .*)?$")
_NUMBER = re.compile(r"-?\d+")
_ORDERED = re.compile(r"^(?:atomic |volatile )*")
_STORED = re.compile(
    r"(?:i\d+|half|bfloat|float|double|ptr(?: addrspace\(\d+\))?)(?= )"
)  # types that are told from values
_TOUCHES = re.compile(r"@llvm\.(?:mem|masked|prefetch|va_|stack|x86)")  # intrinsics that read or write memory
_SIMPLE = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8, "ptr addrspace(3)": 8}
_DEPTH = 40


class _Access(NamedTuple):
    store: bool
    grouped: bool  # LLVM might put it into a group
    base: str


def orderly(a: Analysis, region: Region, private: dict[int, int], size_of: Callable[[str], int]) -> bool:
    """True if groups can be formed of the region's accesses without changing what an item does.

    `private` maps private arrays that lie in the arena to their size; `size_of` gives the size of a type.
    """
    walk = _Walk(a, region, private, size_of)
    accesses = [access for p in _order(a, region) for i in a.pieces[p].body if (access := walk.access(i))]
    stored = grouped_store = ""
    for access in accesses:
        if grouped_store and not (access.store and access.grouped and access.base == grouped_store):
            return False
        if access.grouped and not access.store and stored:
            return False
        if access.store:
            stored = access.base
            grouped_store = access.base if access.grouped else ""
    return True


def _order(a: Analysis, region: Region) -> list[int]:
    """The region's pieces in order, those in a loop twice."""
    inside = set(region.pieces)
    looping = {
        p for p in inside if any(p in a.reached([s]) for s in a.pieces[p].successors if s in inside and s not in a.cuts)
    }
    order: list[int] = []
    for p in region.pieces:
        if p not in looping:
            order.append(p)
        elif p not in order:
            order += [*sorted(looping), *sorted(looping)]
    return order


class _Walk:
    def __init__(self, a: Analysis, region: Region, private: dict[int, int], size_of: Callable[[str], int]) -> None:
        self.definitions = a.definitions
        own = {
            i.value for p in region.pieces for i in (a.pieces[p].body if p in a.cuts else a.pieces[p].instructions())
        }
        self.loaded = set(a.kept) - own  # kept values that the region finds in memory
        self.private = private
        self.size_of = size_of
        self.sizes: dict[str, int] = dict(_SIMPLE)
        self.known: dict[str, Stride] = {}

    def access(self, i: Instruction) -> _Access | None:
        """What an instruction does to memory, None for nothing. Calls may do anything, and are never grouped."""
        if i.op not in ("load", "store"):
            silent = flow.pure(i) or "@hcq." in i.text or ("@llvm." in i.text and not _TOUCHES.search(i.text))
            touches = i.op in ("call", "atomicrmw", "cmpxchg", "fence") and not silent
            return _Access(True, False, "") if touches else None
        operands = text.arguments(_ORDERED.sub("", i.text.split(f"{i.op} ", 1)[1]))
        kind, address = operands[0], operands[1].rsplit(" ", 1)[1]
        if i.op == "store":
            match = _STORED.match(kind)
            kind = match[0] if match else ""
        moved = self.stride(address, 0)
        size = self.size(kind) if kind else 0
        alone = moved == "far" or (moved != "odd" and (abs(moved) in (0, size) or abs(moved) > _LARGEST_GROUP * size))
        return _Access(i.op == "store", not alone, self.base(address))

    def size(self, kind: str) -> int:
        if kind not in self.sizes:
            self.sizes[kind] = (int(kind[1:]) + 7) // 8 if re.fullmatch(r"i\d+", kind) else self.size_of(kind)
        return self.sizes[kind]

    def base(self, address: str) -> str:
        """The pointer that an address is computed from."""
        while address.startswith("%hcq.v"):
            i = self.definitions[int(address[6:])]
            if i.op != "getelementptr":
                break
            address = text.arguments(i.text)[1].rsplit(" ", 1)[1]
        return address

    def stride(self, operand: str, depth: int) -> Stride:
        """How a value moves with local_id(0): addresses in bytes."""
        if not operand.startswith("%hcq.v"):
            return 0
        if int(operand[6:]) in self.loaded:
            return "far"
        if operand not in self.known:
            self.known[operand] = "odd"  # for whoever asks meanwhile, round a loop
            self.known[operand] = self._of(self.definitions[int(operand[6:])], depth + 1)
        return self.known[operand]

    def _of(self, i: Instruction, depth: int) -> Stride:
        if depth > _DEPTH:
            return "odd"
        if i.op == "alloca":
            return self.private.get(i.value, 0)
        if flow.same(i):
            return "odd" if any(self._moves(i, depth)) else 0
        if i.op in ("load", "atomicrmw", "cmpxchg"):
            return "far"
        if i.op == "call":
            if _IDS.search(i.text):
                return 1 if _ITEM.search(i.text) else 0
            return "odd" if "@llvm." in i.text and any(self._moves(i, depth)) else "far"
        expression = _FLAGS.sub("", i.text.split(" = ", 1)[1].split(", !", 1)[0])
        if cast := _CAST.match(expression):
            return self.stride(cast[1], depth)
        if i.op == "getelementptr":
            return self._address(expression, depth)
        if i.op == "phi":
            # A counter of a loop: when that is unrolled, or gone round together, it stands still.
            return 0 if not any(self._moves(i, depth, i.value)) else "odd"
        operands = text.arguments(expression)
        if i.op in ("add", "sub", "or", "mul", "shl") and len(operands) == 2:
            return self._combined(i.op, operands[0].rsplit(" ", 1)[1], operands[1], depth)
        return "odd" if any(self._moves(i, depth)) else 0

    def _combined(self, op: str, first: str, second: str, depth: int) -> Stride:
        left, right = self.stride(first, depth), self.stride(second, depth)
        if op in ("add", "or"):
            return _sum(left, right)
        if op == "sub":
            return _sum(left, right if isinstance(right, str) else -right)
        if left == 0 and right == 0:
            return 0
        if op == "mul" and left == 0:
            left, right, second = right, left, first
        if left == "odd" or right == "odd" or (self._fixed(second) and not _NUMBER.fullmatch(second)):
            return "odd"
        if _NUMBER.fullmatch(second) and not isinstance(left, str):
            if op == "shl" and not 0 <= int(second) < 64:  # poison: whoever wrote it does not use the result
                return "odd"
            return left * (int(second) if op == "mul" else 1 << int(second))
        return "far"

    def _fixed(self, operand: str) -> bool:
        """True if a value follows from constants alone, and so is one once LLVM has computed it."""
        if not operand.startswith("%hcq."):
            return True
        if not operand.startswith("%hcq.v") or int(operand[6:]) in self.loaded:
            return False
        i = self.definitions[int(operand[6:])]
        if i.op in ("load", "call", "phi", "alloca", "atomicrmw", "cmpxchg") or "%hcq.a" in i.text:
            return False
        return all(self._fixed(f"%hcq.v{v}") for v in i.uses)

    def _moves(self, i: Instruction, depth: int, but: int = -1) -> list[bool]:
        return [
            self.stride(f"%hcq.v{v}", depth) != 0 for v in i.uses if v != but and but not in self.definitions[v].uses
        ]

    def _address(self, expression: str, depth: int) -> Stride:
        operands = text.arguments(expression)
        kind = operands[0].removeprefix("getelementptr ")
        total = self.stride(operands[1].rsplit(" ", 1)[1], depth)
        for number, operand in enumerate(operands[2:]):
            moved = self.stride(operand.rsplit(" ", 1)[1], depth)
            if number and kind.startswith("["):
                kind = kind[kind.index(" x ") + 3 : -1]
            elif number:
                if moved != 0:
                    return "odd"
                return total if all(self.stride(o.rsplit(" ", 1)[1], depth) == 0 for o in operands[2:]) else "odd"
            if moved != 0:
                total = _sum(total, moved if isinstance(moved, str) else moved * self.size(kind))
        return total


def _sum(a: Stride, b: Stride) -> Stride:
    if a == "odd" or b == "odd" or (a == "far" and b == "far"):
        return "odd"  # what two of them add up to may be constant
    if isinstance(a, str) or isinstance(b, str):
        return "far"
    return a + b
