"""Declarations of variables and parameters: space, alignment, type, dimensions, initialiser."""

from __future__ import annotations

from hcq.cudacpu.ptx.cursor import Cursor
from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.expressions import begins_constant, constant
from hcq.cudacpu.ptx.nodes import Initialiser, Prototype, Symbol, Variable

LINKAGES = {".extern": "extern", ".visible": "visible", ".weak": "weak", ".common": "common"}
SPACES = {".global", ".const", ".shared", ".local", ".param", ".reg"}
TYPES = {
    "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2",
    "bf16", "bf16x2", "f32", "f64", "f32x2", "tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "texref", "samplerref",
    "surfref",
}  # fmt: skip


class Kind:
    """What stands before the names of a declaration, and what all of them get."""

    def __init__(self) -> None:
        self.type = ""
        self.align = 0
        self.lanes = 1
        self.pointer: str | None = None
        self.attributes: list[str] = []


def kind(cursor: Cursor) -> Kind:
    """Parse `.align 8 .v2 .f32 .ptr .global` up to the name."""
    made = Kind()
    while cursor.token.kind == "dot":
        dot = cursor.next().text
        name = dot[1:].split("::")[0]
        if dot == ".align":
            align = cursor.integer("the alignment in bytes")
            if align <= 0 or align & (align - 1):
                raise PtxError(f"an alignment is a power of two, found {align}", cursor.line)
            made.align = align
        elif dot in (".v2", ".v4", ".v8"):
            made.lanes = int(dot[2:])
        elif dot == ".ptr":
            made.pointer = ""
        elif dot in SPACES and made.pointer is not None:
            made.pointer = name
        elif name in TYPES:
            made.type = name
        elif dot == ".attribute":
            cursor.expect("(")
            made.attributes += _attributes(cursor)
        else:
            raise PtxError(f"expected a type or .align in a declaration, found {dot!r}", cursor.line)
        if dot == ".align" and made.pointer is not None:
            made.align = 0  # it is of what the pointer points to
    if not made.type:
        cursor.fail("a type")
    return made


def variables(cursor: Cursor, space: str, linkage: str = "") -> list[Variable]:
    """Parse what follows the space: one kind, then names with dimensions and initialisers, up to the semicolon."""
    what = kind(cursor)
    found: list[Variable] = []
    while True:
        line = cursor.line
        name = cursor.word("the variable's name")
        if cursor.take("<"):
            number = cursor.count("how many names there are")
            cursor.expect(">")
            found += [_variable(f"{name}{n}", space, what, line, linkage) for n in range(number)]
        else:
            variable = _variable(name, space, what, line, linkage)
            _dimensions(cursor, variable)
            if cursor.take("="):
                _initialiser(cursor, variable.elements)
                if variable.count is None:
                    variable.count = len(variable.elements)
            found.append(variable)
        if not cursor.take(","):
            break
    cursor.expect(";", "after a declaration")
    return found


def parameters(cursor: Cursor) -> list[Variable]:
    """Parse a parenthesised list of parameters, if there is one."""
    found: list[Variable] = []
    if not cursor.take("("):
        return found
    while not cursor.take(")"):
        dot = cursor.next()
        if dot.text not in (".param", ".reg"):
            raise PtxError(f"expected .param or .reg, found {dot.text!r}", dot.line)
        what = kind(cursor)
        variable = _variable(cursor.word("the parameter's name"), dot.text[1:], what, dot.line, "")
        _dimensions(cursor, variable)
        found.append(variable)
        if not cursor.take(",") and cursor.token.text != ")":
            cursor.fail("',' or ')' after a parameter")
    return found


def prototype(cursor: Cursor, name: str) -> Prototype:
    """Parse what follows `.callprototype`."""
    line = cursor.line
    returns = parameters(cursor)
    cursor.word("'_' in a prototype")
    params = parameters(cursor)
    noreturn = False
    while cursor.token.kind == "dot":
        noreturn |= cursor.next().text == ".noreturn"
        if cursor.token.kind == "int":
            cursor.next()
    cursor.expect(";")
    return Prototype(name, returns, params, noreturn, line)


def _variable(name: str, space: str, what: Kind, line: int, linkage: str) -> Variable:
    return Variable(
        name, space, what.type, line, what.align, what.lanes, linkage=linkage, pointer=what.pointer,
        attributes=tuple(what.attributes),
    )  # fmt: skip


def _dimensions(cursor: Cursor, variable: Variable) -> None:
    count: int | None = 1
    while cursor.take("["):
        variable.array = True
        if cursor.take("]"):
            count = None
            continue
        size = constant(cursor).value
        cursor.expect("]")
        if not isinstance(size, int) or size < 0:
            raise PtxError(f"a dimension is a number of elements, found {size}", variable.line)
        count = None if count is None else count * size
    variable.count = count


def _initialiser(cursor: Cursor, into: list[Initialiser]) -> None:
    if cursor.take("{"):
        while not cursor.take("}"):
            _initialiser(cursor, into)
            if not cursor.take(",") and cursor.token.text != "}":
                cursor.fail("',' or '}' in an initialiser")
        return
    into.append(_value(cursor))


def _value(cursor: Cursor) -> Initialiser:
    token = cursor.token
    if token.kind == "int" and cursor.peek().text == "(":  # a mask: 0xff(symbol)
        mask = cursor.integer()
        cursor.expect("(")
        made = _value(cursor)
        cursor.expect(")")
        made.mask = mask
        return made
    if begins_constant(cursor):
        number = constant(cursor)
        return Initialiser(number.value, number.bits, number.width)
    name = cursor.word("a number or a symbol")
    generic = name == "generic" and cursor.take("(")
    if generic:
        name = cursor.word("a symbol")
    symbol = Symbol(name)
    if cursor.token.text in ("+", "-"):
        offset = constant(cursor).value
        symbol.offset = int(offset)
    if generic:
        cursor.expect(")")
        if cursor.token.text in ("+", "-"):
            symbol.offset += int(constant(cursor).value)
    return Initialiser(symbol=symbol, generic=generic)


def _attributes(cursor: Cursor) -> list[str]:
    found: list[str] = []
    depth = 1
    while depth:
        token = cursor.next()
        if token.kind == "end":
            cursor.fail("')' after an attribute")
        depth += (token.text == "(") - (token.text == ")")
        if token.kind == "dot":
            found.append(token.text[1:])
    return found
