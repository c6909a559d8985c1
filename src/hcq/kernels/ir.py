"""The form in the middle of the kernel compiler: small, typed, in single assignment, with structured control flow.

A `Function` is a kernel after its syntax tree was read and before a device's language is written. Values are defined
once; what changes in a loop is passed from round to round as arguments of its block. `if`, `for` and `loop` hold blocks
(there is no goto), so that C, LLVM IR, SPIR-V and an interpreter are all written from it directly. `OPS` is the list of
operations and what each means; verify checks a function against it.

What does not live here: the language (frontend), checking (verify), printing and reading (text), and any target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hcq.kernels import types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.kernels.types import Type


class OpInfo(NamedTuple):
    """What holds of every operation of one code.

    `operands` describes them; `result` the result's type, None for no result; `pure` says that it may be left out,
    repeated or moved: it touches no memory and depends on its operands alone.
    """

    operands: str
    result: str | None
    pure: bool
    meaning: str


_ARITHMETIC = "a, b of one scalar or vector type"

OPS: Final[dict[str, OpInfo]] = {
    # Values
    "const": OpInfo(
        "",
        "any scalar",
        True,
        "attribute value: a bool, int or float that the type holds exactly; NaN and infinities too",
    ),
    "id": OpInfo("", "i32", True, "attributes kind (ID_KINDS) and dim 0 to 2; a launch keeps all of them below 2^31"),
    "pack": OpInfo("2, 4, 8 or 16 scalars", "vector", True, "a vector of them"),
    "splat": OpInfo("scalar", "vector", True, "every element is the operand"),
    "extract": OpInfo("vector", "its element", True, "attribute lane"),
    # Arithmetic: integers wrap, floats round to nearest even after every operation, nothing is contracted or reordered
    "add": OpInfo(_ARITHMETIC, "as a", True, "a + b"),
    "sub": OpInfo(_ARITHMETIC, "as a", True, "a - b"),
    "mul": OpInfo(_ARITHMETIC, "as a", True, "a * b"),
    "div": OpInfo("a, b floats", "as a", True, "a / b, correctly rounded"),
    "floordiv": OpInfo("a, b integers", "as a", True, "rounded down; by zero 0; the least value by -1 wraps to itself"),
    "mod": OpInfo("a, b integers", "as a", True, "a - floordiv(a, b) * b, the sign of b; by zero 0"),
    "rem": OpInfo("a, b floats", "as a", True, "C's fmod: exact, the sign of a"),
    "min": OpInfo(_ARITHMETIC, "as a", True, "the smaller; NaN if either is; of -0.0 and 0.0 either"),
    "max": OpInfo(_ARITHMETIC, "as a", True, "the larger; NaN if either is; of -0.0 and 0.0 either"),
    "and": OpInfo("a, b integers or bools", "as a", True, "bitwise"),
    "or": OpInfo("a, b integers or bools", "as a", True, "bitwise"),
    "xor": OpInfo("a, b integers or bools", "as a", True, "bitwise"),
    "shl": OpInfo(
        "a, b integers", "as a", True, "a * 2^b, wrapped; 0 where b is the width or more (b is taken as unsigned)"
    ),
    "shr": OpInfo(
        "a, b integers", "as a", True, "a / 2^b rounded down; 0, or -1 for a negative a, where b is the width or more"
    ),
    "neg": OpInfo("a number", "as a", True, "-a; integers wrap"),
    "not": OpInfo("a integer or bool", "as a", True, "bitwise; of a bool the other one"),
    "abs": OpInfo("a number", "as a", True, "the least integer wraps to itself"),
    "fma": OpInfo(
        "a, b, c floats of one type",
        "as a",
        True,
        "a * b + c rounded once (f16 and bf16: computed in f32, then rounded)",
    ),
    "sqrt": OpInfo("a float", "as a", True, "correctly rounded; NaN below zero"),
    "floor": OpInfo("a float", "as a", True, "exact"),
    "ceil": OpInfo("a float", "as a", True, "exact"),
    "trunc": OpInfo("a float", "as a", True, "exact"),
    "round": OpInfo("a float", "as a", True, "to the nearest whole number, halves to even; exact"),
    "copysign": OpInfo("a, b floats of one type", "as a", True, "the magnitude of a with the sign of b"),
    "popcount": OpInfo("a integer", "as a", True, "how many bits are set"),
    "clz": OpInfo("a integer", "as a", True, "how many zero bits lead; the width for 0"),
    # Comparison and conversion
    "eq": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a == b; False with a NaN"),
    "ne": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a != b; True with a NaN"),
    "lt": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a < b; False with a NaN"),
    "le": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a <= b; False with a NaN"),
    "gt": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a > b; False with a NaN"),
    "ge": OpInfo(_ARITHMETIC, "bool, or a vector of them", True, "a >= b; False with a NaN"),
    "select": OpInfo(
        "condition (bool, or a vector of them), a, b of one type", "as a", True, "a where the condition holds, else b"
    ),
    "cast": OpInfo(
        "a scalar or vector",
        "same shape",
        True,
        "to integers: from integers modulo 2^bits, from floats toward zero, held to the type's range, NaN is "
        "0; to floats: nearest even; to bool: a != 0; from bool: 0 or 1",
    ),
    "bitcast": OpInfo("a scalar or vector", "same shape and bits, no bool", True, "the same bits read as another type"),
    # Memory. An index counts elements. What adds up to it - its chain of add, sub, mul, neg and casts between integers,
    # back to other operations, arguments and parameters - must not overflow: an error, as an index out of bounds is
    "local": OpInfo(
        "",
        "pointer to local",
        False,
        "attributes name and count: one array a work-group, undefined at its start; only in the outermost block",
    ),
    "private": OpInfo(
        "",
        "pointer to private",
        False,
        "attributes name and count: one array a work-item, undefined at its start; only in the outermost block",
    ),
    "offset": OpInfo("pointer, index integer", "as the pointer", True, "the pointer moved by index elements"),
    "load": OpInfo(
        "pointer, index integer",
        "the element, or a vector of it",
        False,
        "a vector's first element is at index; aligned to the element only",
    ),
    "store": OpInfo(
        "pointer, index integer, value", None, False, "value of the pointer's element type, or a vector of it"
    ),
    "atomic": OpInfo(
        "pointer to global or local, index integer, value [, expected]",
        "the element",
        False,
        "attribute how (ATOMICS): the old value; relaxed, across the device for global memory; cas stores "
        "value where expected is there; floats: add, exchange, min and max",
    ),
    "barrier": OpInfo(
        "",
        None,
        False,
        "all items of the group, or none, come here; local and global writes before it are seen by the group after it",
    ),
    # Sub-groups: neighbours in the linear order of local ids that run together; their size is the target's
    "subgroup": OpInfo(
        "", "i32", True, "attribute kind: size, lane (place in the sub-group) or index (of the sub-group in its group)"
    ),
    "shuffle": OpInfo(
        "value scalar, lane i32",
        "as the value",
        False,
        "the value that the item at lane holds; attribute how: index (lane), xor (own lane ^ lane), up (own -"
        " lane), down (own + lane); outside the sub-group: undefined. All items of the sub-group come here "
        "together",
    ),
    # Control flow
    "if": OpInfo(
        "condition bool", "any number", False, "blocks then and else; each ends by yield with the results, or leaves"
    ),
    "for": OpInfo(
        "start, stop of one integer type, initial values",
        "types of the initial values",
        False,
        "attribute step, a constant other than 0; block (index, values...): Python's range; ends by continue "
        "with the next values, break with the results, or return; run out, the values are the results",
    ),
    "loop": OpInfo(
        "initial values", "any number", False, "block (values...): until break, whose operands are the results"
    ),
    "yield": OpInfo("results of the if around it", None, False, "ends a branch"),
    "continue": OpInfo("next values of the innermost loop", None, False, "ends a block"),
    "break": OpInfo("results of the innermost loop", None, False, "ends a block"),
    "return": OpInfo("", None, False, "ends a block; this item is done"),
}
"""Every operation: operands, result, purity, meaning."""

TERMINATORS: Final = frozenset({"yield", "continue", "break", "return"})
COMPARISONS: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
ID_KINDS: Final = ("global_id", "local_id", "group_id", "global_size", "local_size", "num_groups")
ATOMICS: Final = ("add", "min", "max", "and", "or", "xor", "exchange", "cas")
SUBGROUP_KINDS: Final = ("size", "lane", "index")
SHUFFLES: Final = ("index", "xor", "up", "down")
MAX_OPS: Final = 100_000
"""A kernel may have this many operations after unrolling and inlining."""
MAX_DEPTH: Final = 80
"""Blocks may lie this deep in each other. Compilers take more, but Python's, which PYTHON runs on, a hundred."""
MAX_LOOPS: Final = 16
"""Loops may lie this deep in each other; Python's compiler takes twenty."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's source an operation comes from, and the call it was inlined at. Lines and columns from 1."""

    file: str
    line: int
    column: int
    inlined_at: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Value:
    """One value: the result of an operation, an argument of a block, or a parameter.

    `op` is None for arguments and parameters. `name` is the user's name for it, a hint for readers of the output.
    Compares by identity.
    """

    __slots__ = ("name", "op", "type")

    def __init__(self, type_: Type, name: str = "", op: Op | None = None) -> None:
        self.type = type_
        self.name = name
        self.op = op

    def __repr__(self) -> str:
        return f"<Value {self.name or '?'}: {self.type} by {self.op.code if self.op else 'argument'}>"


class Op:
    """One operation. `code` is a key of `OPS`; operands are values, blocks those of control flow."""

    __slots__ = ("attributes", "blocks", "code", "location", "operands", "results")

    def __init__(
        self,
        code: str,
        operands: Sequence[Value] = (),
        results: Sequence[Type] = (),
        attributes: dict[str, Any] | None = None,
        blocks: Sequence[Block] = (),
        location: Location | None = None,
    ) -> None:
        self.code = code
        self.operands = list(operands)
        self.attributes: dict[str, Any] = attributes or {}
        self.blocks = list(blocks)
        self.location = location
        self.results = [Value(each, op=self) for each in results]

    @property
    def result(self) -> Value:
        """The one result."""
        (only,) = self.results
        return only

    @property
    def is_pure(self) -> bool:
        return OPS[self.code].pure

    def __repr__(self) -> str:
        return f"<Op {self.code} at {self.location}>"


class Block:
    """Operations in order; the last is a terminator. `arguments` are what comes in: a loop's index and values."""

    __slots__ = ("arguments", "ops")

    def __init__(self, arguments: Sequence[Value] = ()) -> None:
        self.arguments = list(arguments)
        self.ops: list[Op] = []

    def walk(self) -> Iterator[Op]:
        """Every operation in it, and in the blocks inside it, in order of the text."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()


@dataclass(slots=True)
class Function:
    """One kernel. `parameters` have scalar types or are pointers to global memory; `source` is the user's text."""

    name: str
    parameters: list[Value]
    body: Block = field(default_factory=Block)
    file: str = ""
    source: str = ""

    def walk(self) -> Iterator[Op]:
        """Every operation, in order of the text."""
        return self.body.walk()

    @property
    def pointers(self) -> list[Value]:
        """The parameters that are buffers, in order: a launch passes these first."""
        return [each for each in self.parameters if isinstance(each.type, types.Pointer)]

    @property
    def scalars(self) -> list[Value]:
        """The parameters that are numbers, in order: a launch passes these after the buffers."""
        return [each for each in self.parameters if not isinstance(each.type, types.Pointer)]


class Builder:
    """Appends operations to a block. `location` is given to each until it is set anew."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.location: Location | None = None

    def op(
        self,
        code: str,
        operands: Sequence[Value] = (),
        results: Sequence[Type] = (),
        blocks: Sequence[Block] = (),
        **attributes: Any,
    ) -> Op:
        """Appends an operation and returns it. Types are not checked here: verify does."""
        op = Op(code, operands, results, attributes, blocks, self.location)
        self.block.ops.append(op)
        return op

    def const(self, value: bool | int | float, type_: types.Scalar) -> Value:
        return self.op("const", (), (type_,), value=value).result

    def id(self, kind: str, dim: int) -> Value:
        return self.op("id", (), (types.i32,), kind=kind, dim=dim).result

    def binary(self, code: str, a: Value, b: Value) -> Value:
        """Arithmetic or a comparison of two values of one type."""
        result = types.with_element(a.type, types.bool_) if code in COMPARISONS else a.type
        return self.op(code, (a, b), (result,)).result

    def unary(self, code: str, a: Value) -> Value:
        return self.op(code, (a,), (a.type,)).result

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.op("select", (condition, a, b), (a.type,)).result

    def cast(self, a: Value, element: types.Scalar) -> Value:
        """The value converted; itself where it has that type."""
        wanted = types.with_element(a.type, element)
        return a if a.type is wanted else self.op("cast", (a,), (wanted,)).result

    def load(self, pointer: Value, index: Value, lanes: int = 1) -> Value:
        element = types.element_of(pointer.type)
        return self.op("load", (pointer, index), (element if lanes == 1 else types.vector(element, lanes),)).result

    def store(self, pointer: Value, index: Value, value: Value) -> None:
        self.op("store", (pointer, index, value))
