"""Operations of a warp in the form of regions: each thread gives its value to an array of the block, a barrier, and
what was given is read. So the loops over threads on both sides of it become vectors.

There are two arrays of a kind, used in turn: what one operation reads is not written by the next before the barrier
after. Who takes part is told by the operation's number beside the value; it is the same for all threads.

Votes, and shuffles by a constant, are done for a whole warp at once, between two barriers: a function of the block
(`!hcq.once`, see llvm-grid.md) reads the arrays 32 lanes at a time and leaves each thread's answer in another array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.cudacpu.lower.forms import warp_functions
from hcq.cudacpu.lower.forms.analysis import destinations
from hcq.cudacpu.ptx.nodes import Function, Immediate, Instruction, Operand, Register

if TYPE_CHECKING:
    from hcq.cudacpu.lower.emitter import Emitter

_THREADS = 1024  # of a block at most
_IDENTITY = {0: "0", 1: "2147483647", 2: "-2147483648", 3: "-1", 4: "0", 5: "-1", 6: "0", 7: "0"}
_REDUCE = ("add", "smin", "smax", "umin", "umax", "and", "or", "xor")  # by the numbers of Op.redux


class Lanes:
    """Of one kernel. Its slots hold the number of the next operation."""

    def __init__(self, e: Emitter, function: Function) -> None:
        self._number = e.slot("i32", name="lanes")
        self.active = ""  # whether the thread takes part in the operation that is written; empty: it does
        self._e = e
        self._constants = _constants(function)

    def begin(self, told: bool) -> None:
        """Write what a kernel begins with; `told`: it has operations that ask who takes part."""
        e = self._e
        e.do(f"store i32 1, ptr {self._number}")
        if told:
            e.do(f"store i32 0, ptr addrspace(3) {_at(e, 'i32', self._single('lanes.votes'), e.context.linear(e))}")
        for number in ("0", "1") if told else ():
            at = _at(e, "i32", self._array("lanes.told", "i32", number), e.context.linear(e))
            e.do(f"store i32 0, ptr addrspace(3) {at}, align 4")

    def shuffle(self, value: str, lane: Operand, clamp: Operand, mode: int) -> tuple[str, str]:
        """Value of 32 bits and predicate of shfl."""
        by, within = self._constant(lane), self._constant(clamp)
        if by is not None and within is not None:
            return self._permuted(value, by, within, mode)
        e = self._e
        return self._chosen(value, e.read(lane, "b32"), e.read(clamp, "b32"), mode)

    def _chosen(self, value: str, lane: str, clamp: str, mode: int) -> tuple[str, str]:
        e = self._e
        row = self._row("i32", value)
        own = self._lane()
        offset, limit = e.op(f"and i32 {lane}, 31"), e.op(f"and i32 {clamp}, 31")
        segment = e.op(f"and i32 {e.op(f'lshr i32 {clamp}, 8')}, 31")
        outside = e.op(f"xor i32 {segment}, 31")
        least = e.op(f"and i32 {own}, {segment}")
        most = e.op(f"or i32 {least}, {e.op(f'and i32 {limit}, {outside}')}")
        if mode == 3:
            source = e.op(f"or i32 {least}, {e.op(f'and i32 {offset}, {outside}')}")
        else:
            source = e.op(f"{('sub', 'add', 'xor')[mode]} i32 {own}, {offset}")
        within = e.op(f"icmp {'sge' if mode == 0 else 'sle'} i32 {source}, {most}")
        chosen = e.op(f"select i1 {within}, i32 {source}, i32 {own}")
        at = e.op(f"getelementptr i32, ptr addrspace(3) {row}, i32 {chosen}")
        return e.op(f"load i32, ptr addrspace(3) {at}, align 4"), within

    def vote(self, predicate: str, mask: str) -> tuple[str, str]:
        """Those who take part, and those of them whose predicate holds."""
        e = self._e
        number, given, linear = self._voted(predicate)
        here, yes = self._single("lanes.here"), self._single("lanes.yes")
        e.unit.helper("lanes.vote", warp_functions.vote("lanes.vote"))
        self._once("lanes.vote", number, given, here, yes)
        e.do(f"store i32 {e.op(f'add i32 {number}, 1')}, ptr {self._number}")
        found = [e.op(f"load i32, ptr addrspace(3) {_at(e, 'i32', each, linear)}, align 4") for each in (here, yes)]
        members = e.op(f"and i32 {found[0]}, {mask}")
        members = e.op(f"or i32 {members}, {e.op(f'shl i32 1, {self._lane()}')}")
        return members, e.op(f"and i32 {found[1]}, {members}")

    def vote_of_block(self, predicate: str) -> tuple[str, str]:
        """How many threads come to it, and of how many of them the predicate holds."""
        e = self._e
        number, given, _ = self._voted(predicate)
        e.declare("declare i32 @llvm.ctpop.i32(i32)")
        e.unit.helper("lanes.count", warp_functions.count("lanes.count"))
        both = self._once("lanes.count", number, given, result="i32")
        e.do(f"store i32 {e.op(f'add i32 {number}, 1')}, ptr {self._number}")
        return e.op(f"lshr i32 {both}, 16"), e.op(f"and i32 {both}, 65535")

    def same(self, type: str, value: str, mask: str) -> tuple[str, str]:
        """Those who take part, and those of them who gave the same value."""
        e = self._e
        members, row = self._given(type, value, mask)
        wide = self._splat(type, value)
        same = self._bits(e.op(f"icmp eq <32 x {type}> {self._all(type, row)}, {wide}"))
        return members, e.op(f"and i32 {same}, {members}")

    def reduce(self, kind: int, value: str, mask: str) -> str:
        """What redux gives of values of 32 bits."""
        e = self._e
        members, row = self._given("i32", value, mask)
        chosen = e.op(
            f"select <32 x i1> {e.op(f'bitcast i32 {members} to <32 x i1>')}, <32 x i32> {self._all('i32', row)},"
            f" <32 x i32> {_splat('i32', _IDENTITY[kind])}"
        )
        return e.intrinsic(f"llvm.vector.reduce.{_REDUCE[kind]}.v32i32", "i32", ("<32 x i32>", chosen))

    def give(self, type: str, values: list[str]) -> str:
        """Pointer to what the lanes of the warp gave, lane after lane: as many values of 32 or 64 bits each."""
        e, count = self._e, len(values)
        number = e.op(f"load i32, ptr {self._number}")
        name = f"lanes.{type}.x{count}"
        e.unit.helper(name, f"@{name} = internal addrspace(3) global [{2 * _THREADS * count} x {type}] undef, align 64")
        half = e.op(f"mul i32 {e.op(f'and i32 {number}, 1')}, {_THREADS * count}")
        first = e.op(f"getelementptr {type}, ptr addrspace(3) @{name}, i32 {half}")
        own = _at(e, type, first, e.op(f"mul i32 {e.context.linear(e)}, {count}"))
        for n, value in enumerate(values):
            e.do(f"store {type} {value}, ptr addrspace(3) {_at(e, type, own, str(n))}")
        e.do("call void @hcq.barrier()")
        e.do(f"store i32 {e.op(f'add i32 {number}, 1')}, ptr {self._number}")
        begin = e.op(f"and i32 {e.context.linear(e)}, -32")
        row = _at(e, type, first, e.op(f"mul i32 {begin}, {count}"))
        return e.op(f"addrspacecast ptr addrspace(3) {row} to ptr")

    # -- arrays ---------------------------------------------------------------------------------------------------

    def _row(self, type: str, value: str) -> str:
        """Give a value; after the barrier, where the warp's first lane's is."""
        e = self._e
        number = e.op(f"load i32, ptr {self._number}")
        first = self._array(f"lanes.{type}", type, number)
        linear = e.context.linear(e)
        e.do(f"store {type} {value}, ptr addrspace(3) {_at(e, type, first, linear)}, align {int(type[1:]) // 8}")
        e.do("call void @hcq.barrier()")
        e.do(f"store i32 {e.op(f'add i32 {number}, 1')}, ptr {self._number}")
        return _at(e, type, first, e.op(f"and i32 {e.context.linear(e)}, -32"))

    def _given(self, type: str, value: str, mask: str) -> tuple[str, str]:
        """Who takes part, and the warp's row of values."""
        e = self._e
        number = e.op(f"load i32, ptr {self._number}")
        told = self._array("lanes.told", "i32", number)
        own = e.op(f"select i1 {self.active}, i32 {number}, i32 0") if self.active else number
        e.do(f"store i32 {own}, ptr addrspace(3) {_at(e, 'i32', told, e.context.linear(e))}, align 4")
        row = self._row(type, value)
        numbers = self._all("i32", _at(e, "i32", told, e.op(f"and i32 {e.context.linear(e)}, -32")))
        return self._members(numbers, number, mask), row

    def _voted(self, predicate: str) -> tuple[str, str, str]:
        """Give a predicate, with the number of the operation; that, the array, and the thread's place in it."""
        e = self._e
        number = e.op(f"load i32, ptr {self._number}")
        own = e.op(f"or i32 {e.op(f'shl i32 {number}, 1')}, {e.op(f'zext i1 {predicate} to i32')}")
        if self.active:
            own = e.op(f"select i1 {self.active}, i32 {own}, i32 0")
        given, linear = self._single("lanes.votes"), e.context.linear(e)
        e.do(f"store i32 {own}, ptr addrspace(3) {_at(e, 'i32', given, linear)}, align 4")
        return number, given, linear

    def _permuted(self, value: str, lane: int, clamp: int, mode: int) -> tuple[str, str]:
        """A shuffle whose lane and clamp are constants."""
        e = self._e
        order = warp_functions.sources(lane, clamp, mode)
        name = f"lanes.shuffle.{mode}.{lane}.{clamp}"
        e.unit.helper(name, warp_functions.shuffle(name, order))
        given, taken = self._single("lanes.given"), self._single("lanes.taken")
        linear = e.context.linear(e)
        e.do(f"store i32 {value}, ptr addrspace(3) {_at(e, 'i32', given, linear)}, align 4")
        self._once(name, "0", given, taken)
        within = sum(1 << own for own, (_, inside) in enumerate(order) if inside)
        bit = e.op(f"and i32 {e.op(f'lshr i32 {within}, {self._lane()}')}, 1")
        found = e.op(f"load i32, ptr addrspace(3) {_at(e, 'i32', taken, linear)}, align 4")
        return found, e.op(f"icmp ne i32 {bit}, 0")

    def _constant(self, operand: Operand) -> int | None:
        if isinstance(operand, Register):
            return self._constants.get(operand.name)
        return operand.value if isinstance(operand, Immediate) and isinstance(operand.value, int) else None

    def _once(self, name: str, number: str, *arrays: str, result: str = "void") -> str:
        """A function of the block that works on arrays, between two barriers; its result, the same for all threads."""
        e = self._e
        e.do("call void @hcq.barrier()")
        passed = [f"ptr {e.op(f'addrspacecast ptr addrspace(3) {each} to ptr')}" for each in arrays]
        passed += [f"i32 {number}", f"i32 {e.context.threads(e)}"]
        call = f"call {result} @{name}({', '.join(passed)}), !hcq.once !0"
        found = "" if result == "void" else e.op(call)
        if not found:
            e.do(call)
        e.do("call void @hcq.barrier()")
        return found

    def _single(self, name: str) -> str:
        """An array that is written and read once between two barriers."""
        self._e.unit.helper(name, f"@{name} = internal addrspace(3) global [{_THREADS} x i32] undef, align 64")
        return f"@{name}"

    def _array(self, name: str, type: str, number: str) -> str:
        e = self._e
        e.unit.helper(name, f"@{name} = internal addrspace(3) global [{2 * _THREADS} x {type}] undef, align 64")
        half = e.op(f"mul i32 {e.op(f'and i32 {number}, 1')}, {_THREADS}")
        return e.op(f"getelementptr {type}, ptr addrspace(3) @{name}, i32 {half}")

    def _all(self, type: str, row: str) -> str:
        align = 4 if type == "i32" else 8
        return self._e.op(f"load <32 x {type}>, ptr addrspace(3) {row}, align {align}")

    def _members(self, numbers: str, number: str, mask: str) -> str:
        """Lanes that exist, gave something to this operation, and that the mask names; the thread itself always."""
        e = self._e
        here = self._bits(e.op(f"icmp eq <32 x i32> {numbers}, {self._splat('i32', number)}"))
        first = e.op(f"and i32 {e.context.linear(e)}, -32")
        left = e.op(f"sub i32 {e.context.threads(e)}, {first}")
        short = e.op(f"icmp ult i32 {left}, 32")
        rest = e.op(f"and i32 {left}, 31")
        some = e.op(f"sub i32 {e.op(f'shl i32 1, {rest}')}, 1")
        existing = e.op(f"select i1 {short}, i32 {some}, i32 -1")
        members = e.op(f"and i32 {here}, {e.op(f'and i32 {existing}, {mask}')}")
        return e.op(f"or i32 {members}, {e.op(f'shl i32 1, {self._lane()}')}")

    def _lane(self) -> str:
        return self._e.op(f"and i32 {self._e.context.linear(self._e)}, 31")

    def _bits(self, flags: str) -> str:
        return self._e.op(f"bitcast <32 x i1> {flags} to i32")

    def _splat(self, type: str, value: str) -> str:
        e = self._e
        one = e.op(f"insertelement <32 x {type}> poison, {type} {value}, i32 0")
        return e.op(f"shufflevector <32 x {type}> {one}, <32 x {type}> poison, <32 x i32> zeroinitializer")


def _constants(function: Function) -> dict[str, int]:
    """Registers that hold one constant and nothing else."""
    found: dict[str, int | None] = {}
    for each in function.body or ():
        if isinstance(each, Instruction):
            value = each.operands[1] if each.opcode == "mov" and each.guard is None else None
            known = value.value if isinstance(value, Immediate) and isinstance(value.value, int) else None
            for name in destinations(each):
                found[name] = known if name not in found else None
    return {name: value for name, value in found.items() if value is not None}


def _at(e: Emitter, type: str, first: str, index: str) -> str:
    return e.op(f"getelementptr {type}, ptr addrspace(3) {first}, i32 {index}")


def _splat(type: str, value: str) -> str:
    return f"splat ({type} {value})"
