"""Operands of instructions."""

from __future__ import annotations

from hcq.cudacpu.ptx.cursor import Cursor
from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.expressions import begins_constant, constant
from hcq.cudacpu.ptx.nodes import (
    Address,
    Group,
    Immediate,
    Member,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from hcq.cudacpu.ptx.scopes import Scopes

_VECTORS = {"tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"}
_SCALARS = {
    "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "is_explicit_cluster", "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "clock", "clock_hi", "clock64",
    "globaltimer", "globaltimer_lo", "globaltimer_hi", "total_smem_size", "aggr_smem_size", "dynamic_smem_size",
    "current_graph_exec", "reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_cap",
    "reserved_smem_offset_0", "reserved_smem_offset_1",
}  # fmt: skip


def operand(cursor: Cursor, scopes: Scopes) -> Operand:
    """Parse one operand."""
    token = cursor.token
    if token.text == "[" and token.kind == "mark":
        return _address(cursor, scopes)
    if token.text == "!" and cursor.peek().kind == "word":
        cursor.next()
        return Not(operand(cursor, scopes))
    if token.text == "{":
        return vector(cursor, scopes)
    if begins_constant(cursor):
        return constant(cursor)
    made = _named(cursor, scopes)
    if cursor.token.text == "|":
        cursor.next()
        return Pair(made, _named(cursor, scopes))
    return made


def group(cursor: Cursor, scopes: Scopes) -> Group:
    """Parse (a, b, ...) of a call."""
    cursor.expect("(")
    elements: list[Operand] = []
    while not cursor.take(")"):
        elements.append(operand(cursor, scopes))
        if not cursor.take(",") and cursor.token.text != ")":
            cursor.fail("',' or ')' among a call's operands")
    return Group(tuple(elements))


def vector(cursor: Cursor, scopes: Scopes) -> Vector:
    """Parse {a, b, ...}."""
    cursor.expect("{")
    elements: list[Operand] = []
    while not cursor.take("}"):
        elements.append(operand(cursor, scopes))
        if not cursor.take(",") and cursor.token.text != "}":
            cursor.fail("',' or '}' in a vector")
    return Vector(tuple(elements))


def _named(cursor: Cursor, scopes: Scopes) -> Operand:
    line = cursor.line
    name = cursor.word("an operand")
    if name == "_":
        return Sink()
    register = scopes.find_register(name)
    if isinstance(register, tuple):
        if cursor.token.kind != "dot":
            return Vector(register)
        component = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}.get(cursor.next().text[1:], 99)
        if component >= len(register):
            raise PtxError(f"{name} has {len(register)} components", line)
        return register[component]
    if register is not None:
        if cursor.token.kind == "dot":
            return Member(register, cursor.next().text[1:])
        return register
    if name[0] == "%":
        return _special(cursor, name[1:], line)
    symbol = scopes.symbol(name)
    while cursor.token.text in ("+", "-") and cursor.token.kind == "mark":
        sign = 1 if cursor.next().text == "+" else -1
        symbol.offset += sign * _offset(cursor)
    return symbol


def _special(cursor: Cursor, name: str, line: int) -> Operand:
    if name in _VECTORS:
        if cursor.token.kind == "dot":
            component = cursor.next().text[1:]
            if component not in ("x", "y", "z", "w"):
                raise PtxError(f"%{name} has the components x, y, z, w, not {component!r}", line)
            return Special(f"{name}.{component}")
        return Vector(tuple(Special(f"{name}.{c}") for c in "xyzw"))
    if name in _SCALARS or name.startswith(("envreg", "pm")):
        if cursor.token.kind == "dot" and cursor.token.text == ".x":  # %clock.x and its like stand in old text
            cursor.next()
        return Special(name)
    raise PtxError(f"register %{name} is not declared", line)


def _address(cursor: Cursor, scopes: Scopes) -> Address:
    cursor.expect("[")
    base: Register | Symbol | int
    if begins_constant(cursor):
        value = constant(cursor).value
        if not isinstance(value, int):
            cursor.fail("an integer as address")
        base = value
    else:
        line = cursor.line
        made = _named(cursor, scopes)
        if not isinstance(made, Register | Symbol):
            raise PtxError("an address begins with a register, a variable or a number", line)
        base = made
    offset = 0
    while cursor.token.text in ("+", "-") and cursor.token.kind == "mark":
        sign = 1 if cursor.next().text == "+" else -1
        offset += sign * _offset(cursor)
    extra: list[Operand] = []
    while cursor.take(","):
        extra.append(operand(cursor, scopes))
    cursor.expect("]", "after an address")
    if isinstance(base, Symbol):
        offset, base.offset = offset + base.offset, 0
    return Address(base, offset, tuple(extra))


def _offset(cursor: Cursor) -> int:
    made: Immediate = constant(cursor)
    if not isinstance(made.value, int):
        cursor.fail("an integer as offset")
    return made.value
