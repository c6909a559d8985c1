"""Whether a function is what ir.OPS says: each operand defined and in reach, each type right, each block ended.

Tests check by it what the front end and the passes make; what is read from text is always checked. What does not live
here: whether a kernel is right (the PYTHON device), or can be had on a target (lower).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NoReturn

from hcq.errors import InvalidProgram
from hcq.kernels import ir, types
from hcq.kernels.types import Pointer, Scalar, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.kernels.ir import Block, Function, Op, Value
    from hcq.kernels.types import Type

_UNIFORM: Final[dict[str, tuple[int, str]]] = {
    **dict.fromkeys(("add", "sub", "mul"), (2, "iuf")),
    **dict.fromkeys(("div", "rem", "copysign"), (2, "f")),
    **dict.fromkeys(("floordiv", "mod", "shl", "shr"), (2, "iu")),
    **dict.fromkeys(("min", "max"), (2, "biuf")),
    **dict.fromkeys(("and", "or", "xor"), (2, "biu")),
    **dict.fromkeys(("neg", "abs"), (1, "iuf")),
    **dict.fromkeys(("sqrt", "floor", "ceil", "trunc", "round"), (1, "f")),
    **dict.fromkeys(("popcount", "clz"), (1, "iu")),
    "not": (1, "biu"),
    "fma": (3, "f"),
}
"""Operations whose operands and result are of one type: how many operands, and which kinds of scalars."""


def verify(function: Function) -> None:
    """Raises InvalidProgram, naming the operation and its place, where `function` breaks a rule of `ir.OPS`."""
    _Verifier(function).run()


class _Verifier:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.reach: set[Value] = set()
        self.loops: list[tuple[list[Type], list[Type]]] = []
        self.branches: list[list[Type]] = []
        self.count = 0

    def run(self) -> None:
        names: set[str] = set()
        for each in self.function.parameters:
            if not each.name.isidentifier() or each.name in names:
                self.fail(None, f"parameters need names of their own, which {each.name!r} is not")
            if isinstance(each.type, Vector) or (isinstance(each.type, Pointer) and each.type.space != "global"):
                self.fail(
                    None, f"parameter {each.name} is {each.type}; only scalars and pointers to global memory may be"
                )
            names.add(each.name)
        if self.function.body.arguments:
            self.fail(None, "its outermost block has arguments; parameters are the function's")
        self.block(self.function.body, self.function.parameters, frozenset({"return"}), depth=0)

    def fail(self, op: Op | None, why: str) -> NoReturn:
        place = f", {op.code}" + (f" at {op.location}" if op.location else "") if op is not None else ""
        raise InvalidProgram(f"kernel {self.function.name}{place}: {why}")

    def need(self, op: Op, condition: bool, why: str) -> None:
        if not condition:
            self.fail(op, why)

    def same(self, op: Op, what: str, got: Sequence[Type], wanted: Sequence[Type]) -> None:
        if list(got) != list(wanted):
            listed = [", ".join(map(str, each)) or "none" for each in (wanted, got)]
            self.fail(op, f"{what} must be {listed[0]}, not {listed[1]}")

    def block(self, block: Block, arguments: Sequence[Value], ends: frozenset[str], depth: int) -> None:
        """Checks one block, which may end by `ends`. What it defines is out of reach afterwards."""
        if not block.ops or block.ops[-1].code not in ends:
            self.fail(block.ops[-1] if block.ops else None, f"the block must end by {' or '.join(sorted(ends))}")
        defined = set(arguments)
        if len(defined) != len(arguments) or defined & self.reach:
            self.fail(block.ops[-1], "an argument of the block is in the function twice")
        self.reach |= defined
        for op in block.ops:
            self.count += 1
            self.need(op, self.count <= ir.MAX_OPS, f"the kernel has more than {ir.MAX_OPS} operations")
            self.need(op, op.code in ir.OPS, "there is no such operation")
            self.need(op, op.code not in ir.TERMINATORS or op is block.ops[-1], "it must end its block")
            self.need(op, op.code not in ("local", "private") or depth == 0, "it stands in an inner block")
            for operand in op.operands:
                self.need(op, operand in self.reach, f"{operand!r} is not defined before it, here or in a block around")
            self.check_types(op)
            self.inner(op, ends, depth)
            for result in op.results:
                self.need(op, result.op is op and result not in self.reach, "its result belongs to another operation")
                self.reach.add(result)
                defined.add(result)
        self.reach -= defined

    def inner(self, op: Op, ends: frozenset[str], depth: int) -> None:
        """Checks the blocks of an operation."""
        results = [each.type for each in op.results]
        self.need(
            op, len(op.blocks) == {"if": 2, "for": 1, "loop": 1}.get(op.code, 0), "it has a wrong number of blocks"
        )
        if op.code == "if":
            self.branches.append(results)
            for branch in op.blocks:
                self.block(branch, branch.arguments, ends | {"yield"}, depth + 1)
            self.branches.pop()
        elif op.blocks:
            carried = [each.type for each in op.operands[2 if op.code == "for" else 0 :]]
            outer, self.branches = self.branches, []
            self.loops.append((carried, results))
            inner = op.blocks[0]
            self.block(inner, inner.arguments, frozenset({"continue", "break", "return"}), depth + 1)
            self.loops.pop()
            self.branches = outer

    def check_types(self, op: Op) -> None:
        """Checks the types of operands, results and attributes."""
        operands = [each.type for each in op.operands]
        results = [each.type for each in op.results]
        info = ir.OPS[op.code]
        if info.result is None:
            self.same(op, "its results", results, [])
        if op.code in _UNIFORM or op.code in ir.COMPARISONS:
            count, kinds = _UNIFORM.get(op.code, (2, "biuf"))
            self.need(op, len(operands) == count, f"it takes {count} operands, not {len(operands)}")
            self.numbers(op, operands[0], kinds)
            self.same(op, "its operands", operands, [operands[0]] * count)
            comparison = op.code in ir.COMPARISONS
            result = types.with_element(operands[0], types.bool_) if comparison else operands[0]
            self.same(op, "its result", results, [result])
            return
        check: Callable[[Op, list[Type], list[Type]], None] = getattr(self, f"on_{op.code}")
        check(op, operands, results)

    def numbers(self, op: Op, type_: Type, kinds: str) -> None:
        """`type_` is a scalar or vector whose elements are of one of these kinds."""
        good = not isinstance(type_, Pointer) and types.element_of(type_).kind in kinds
        self.need(op, good, f"it does not take {type_}")

    def pointed(self, op: Op, operands: list[Type], more: int, spaces: Sequence[str] = types.SPACES) -> Scalar:
        """The first operands are a pointer and an index; `more` follow. Returns what the pointer points to."""
        self.need(op, len(operands) == 2 + more, f"it takes {2 + more} operands, not {len(operands)}")
        first, index = operands[:2]
        if not isinstance(first, Pointer) or first.space not in spaces:
            self.fail(op, f"its first operand must point to {' or '.join(spaces)} memory, not be {first}")
        self.need(op, isinstance(index, Scalar) and index.is_integer, f"an index is an integer, not {index}")
        return first.element

    def on_const(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])
        self.need(op, len(results) == 1 and isinstance(results[0], Scalar), "its result must be a scalar")
        type_, value = types.element_of(results[0]), op.attributes.get("value")
        if type_.kind == "b":
            good = isinstance(value, bool)
        elif type_.is_integer:
            low, high = type_.range
            good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        else:
            good = isinstance(value, float) and (math.isnan(value) or round_float(value, type_) == value)
        self.need(op, good, f"{type_} has no value {value!r} (bools, ints and floats are told apart)")

    def on_id(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])
        self.same(op, "its result", results, [types.i32])
        known = op.attributes.get("kind") in ir.ID_KINDS and op.attributes.get("dim") in (0, 1, 2)
        self.need(op, known, f"no such id: {op.attributes}")

    def on_pack(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(
            op, len(operands) in types.LANES and isinstance(operands[0], Scalar), "it takes 2, 4, 8 or 16 scalars"
        )
        self.same(op, "its operands", operands, [operands[0]] * len(operands))
        self.same(op, "its result", results, [types.vector(types.element_of(operands[0]), len(operands))])

    def on_splat(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(op, len(results) == 1 and isinstance(results[0], Vector), "its result must be a vector")
        self.same(op, "its operand", operands, [types.element_of(results[0])])

    def on_extract(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        source = operands[0] if len(operands) == 1 else None
        if not isinstance(source, Vector):
            self.fail(op, "it takes a vector")
        self.need(op, op.attributes.get("lane") in range(source.lanes), f"no lane {op.attributes.get('lane')}")
        self.same(op, "its result", results, [source.element])

    def on_select(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(op, len(operands) == 3, f"it takes 3 operands, not {len(operands)}")
        self.numbers(op, operands[1], "biuf")
        one = operands[0] is types.bool_
        condition = types.bool_ if one else types.with_element(operands[1], types.bool_)
        self.same(op, "its operands", operands, [condition, operands[1], operands[1]])
        self.same(op, "its result", results, [operands[1]])

    def on_cast(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(op, len(operands) == 1 and len(results) == 1, "it has one operand and one result")
        self.numbers(op, operands[0], "biuf")
        self.same(op, "its result", results, [types.with_element(operands[0], types.element_of(results[0]))])

    def on_bitcast(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.on_cast(op, operands, results)
        source, target = types.element_of(operands[0]), types.element_of(results[0])
        good = source.bits == target.bits and "b" not in source.kind + target.kind
        self.need(op, good, f"{source} and {target} differ in bits, or one is bool")

    def on_local(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])
        good = len(results) == 1 and isinstance(results[0], Pointer) and results[0].space == op.code
        self.need(op, good, f"its result must point to {op.code} memory")
        count = op.attributes.get("count")
        self.need(op, isinstance(count, int) and 0 < count < 1 << 31, f"no array has {count!r} elements")
        self.need(op, isinstance(op.attributes.get("name"), str), "it needs a name")

    on_private = on_local

    def on_offset(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.pointed(op, operands, 0)
        self.same(op, "its result", results, operands[:1])

    def on_load(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        element = self.pointed(op, operands, 0)
        good = len(results) == 1 and not isinstance(results[0], Pointer) and types.element_of(results[0]) is element
        self.need(op, good, f"its result must be {element} or a vector of it")

    def on_store(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        element = self.pointed(op, operands, 1)
        good = not isinstance(operands[2], Pointer) and types.element_of(operands[2]) is element
        self.need(op, good, f"what is stored must be {element} or a vector of it, not {operands[2]}")

    def on_atomic(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        how = op.attributes.get("how")
        self.need(op, how in ir.ATOMICS, f"no atomic operation is called {how!r}")
        element = self.pointed(op, operands, 2 if how == "cas" else 1, ("global", "local"))
        self.need(op, element.kind != "b" and element.bits >= 32, f"no atomic operation works on {element}")
        floats = how in ("add", "min", "max", "exchange")
        self.need(op, element.is_integer or floats, f"{how} does not work on {element}")
        self.same(op, "its values", operands[2:], [element] * (len(operands) - 2))
        self.same(op, "its result", results, [element])

    def on_barrier(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])

    def on_subgroup(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])
        self.same(op, "its result", results, [types.i32])
        self.need(op, op.attributes.get("kind") in ir.SUBGROUP_KINDS, f"nothing of a sub-group is {op.attributes}")

    def on_shuffle(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(op, len(operands) == 2 and isinstance(operands[0], Scalar), "it takes a scalar and a lane")
        self.same(op, "its operands", operands, [operands[0], types.i32])
        self.same(op, "its result", results, operands[:1])
        self.need(op, op.attributes.get("how") in ir.SHUFFLES, f"no shuffle is called {op.attributes.get('how')!r}")

    def on_if(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its condition", operands, [types.bool_])
        for each in op.blocks:
            self.need(op, not each.arguments, "its blocks have no arguments")

    def on_for(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.need(op, len(operands) >= 2, "it takes a start, a stop and initial values")
        self.need(op, isinstance(operands[0], Scalar) and operands[0].is_integer, "its index must be an integer")
        step = op.attributes.get("step")
        high = types.element_of(operands[0]).range[1]
        good = isinstance(step, int) and not isinstance(step, bool) and step != 0 and -high <= step <= high
        self.need(op, good, f"its step must be a constant other than 0 that its index can hold, not {step!r}")
        self.same(op, "its bounds", operands[:2], [operands[0]] * 2)
        self.same(op, "its results", results, operands[2:])
        if len(op.blocks) == 1:
            arguments = [each.type for each in op.blocks[0].arguments]
            self.same(op, "the arguments of its block", arguments, [operands[0], *operands[2:]])

    def on_loop(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        if len(op.blocks) == 1:
            self.same(op, "the arguments of its block", [each.type for each in op.blocks[0].arguments], operands)

    def on_yield(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "what it gives", operands, self.branches[-1] if self.branches else [])

    def on_continue(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "what it passes on", operands, self.loops[-1][0] if self.loops else [])

    def on_break(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "what it passes on", operands, self.loops[-1][1] if self.loops else [])

    def on_return(self, op: Op, operands: list[Type], results: list[Type]) -> None:
        self.same(op, "its operands", operands, [])


def round_float(value: float, type_: Scalar) -> float:
    """The value of a float type nearest to a Python float, ties to even, as a Python float; NaN stays NaN."""
    import numpy

    with numpy.errstate(over="ignore"):
        return float(type_.dtype.numpy.type(value))
