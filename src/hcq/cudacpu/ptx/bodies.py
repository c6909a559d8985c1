"""Bodies of functions: declarations, labels, instructions, nested scopes."""

from __future__ import annotations

from hcq.cudacpu.ptx.cursor import Cursor
from hcq.cudacpu.ptx.declarations import kind, prototype, variables
from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.nodes import Function, Instruction, Label, Not, Operand, Register, Symbol
from hcq.cudacpu.ptx.operands import group, operand
from hcq.cudacpu.ptx.scopes import Scopes

_CALLS = ("call", "tailcall")


class Body:
    """Parses the braces of one function into it."""

    def __init__(self, cursor: Cursor, function: Function) -> None:
        self._cursor = cursor
        self._function = function
        self._scopes = Scopes()
        self._source: tuple[int, int, int] | None = None
        for variable in (*function.returns, *function.params):
            if variable.space == "reg":
                self._register(variable.name, variable.type, variable.lanes, variable.line)
            else:
                self._scopes.declare(variable.name, variable.line)

    def parse(self) -> list[Instruction | Label]:
        """Parse from the opening brace to the closing one."""
        cursor = self._cursor
        found: list[Instruction | Label] = []
        cursor.expect("{")
        while True:
            token = cursor.token
            if token.kind == "dot":
                self._directive()
            elif token.kind == "word" and cursor.peek().text == ":":
                self._labelled(found)
            elif token.kind == "word" or token.text == "@":
                found.append(self._instruction())
            elif token.text == "{":
                cursor.next()
                self._scopes.enter()
            elif token.text == "}":
                cursor.next()
                self._scopes.leave()
                if not self._scopes.depth:
                    return found
            elif token.text == ";":
                cursor.next()
            else:
                cursor.fail("an instruction, a directive, a label or '}'")

    def _labelled(self, found: list[Instruction | Label]) -> None:
        cursor = self._cursor
        name, line = cursor.next().text, cursor.line
        cursor.expect(":")
        if cursor.token.text in (".branchtargets", ".calltargets"):
            cursor.next()
            self._function.tables[self._scopes.declare(name, line)] = self._symbols()
        elif cursor.token.text == ".callprototype":
            cursor.next()
            unique = self._scopes.declare(name, line)
            self._function.prototypes[unique] = prototype(cursor, unique)
        else:
            found.append(Label(self._scopes.label(name, line), line))

    def _symbols(self) -> list[Symbol]:
        cursor = self._cursor
        found = [self._scopes.symbol(cursor.word("a label"))]
        while cursor.take(","):
            found.append(self._scopes.symbol(cursor.word("a label")))
        cursor.expect(";")
        return found

    def _directive(self) -> None:
        cursor = self._cursor
        token = cursor.next()
        dot = token.text
        if dot == ".reg":
            self._registers()
        elif dot in (".local", ".shared", ".param", ".global", ".const", ".shared::cta"):
            for variable in variables(cursor, dot[1:].split("::")[0]):
                variable.name = self._scopes.declare(variable.name, variable.line)
                self._function.variables.append(variable)
        elif dot == ".loc":
            self._source = (cursor.integer(), cursor.integer(), cursor.integer())
            skip_line(cursor, token.line)
        elif dot == ".pragma":
            while cursor.token.kind == "string" or cursor.token.text == ",":
                cursor.next()
            cursor.expect(";")
        elif dot in (".file", ".section"):
            raise PtxError(f"{dot} stands inside a function", token.line)
        else:
            raise PtxError(f"expected a declaration, .loc or .pragma, found {dot!r}", token.line)

    def _registers(self) -> None:
        cursor = self._cursor
        what = kind(cursor)
        while True:
            line = cursor.line
            name = cursor.word("the register's name")
            if cursor.take("<"):
                number = cursor.count("how many registers there are")
                cursor.expect(">")
                for n in range(number):
                    self._register(f"{name}{n}", what.type, what.lanes, line)
            else:
                self._register(name, what.type, what.lanes, line)
            if not cursor.take(","):
                break
        cursor.expect(";", "after a declaration")

    def _register(self, name: str, type: str, lanes: int, line: int) -> None:
        for register in self._scopes.register(name, type, lanes, line):
            self._function.registers[register.name] = register.type

    def _instruction(self) -> Instruction:
        cursor = self._cursor
        guard = self._guard() if cursor.token.text == "@" else None
        line = cursor.line
        opcode = cursor.word("an instruction")
        modifiers: list[str] = []
        while cursor.token.kind == "dot":
            modifiers.append(cursor.next().text[1:])
        operands: list[Operand] = []
        call = opcode in _CALLS
        while not cursor.take(";"):
            if call and cursor.token.text == "(":
                operands.append(group(cursor, self._scopes))
            else:
                operands.append(operand(cursor, self._scopes))
            if not cursor.take(",") and cursor.token.text != ";":
                cursor.fail("',' or ';' after an operand")
        return Instruction(line, opcode, tuple(modifiers), tuple(operands), guard, self._source)

    def _guard(self) -> Register | Not:
        cursor = self._cursor
        cursor.expect("@")
        negated = cursor.take("!")
        line = cursor.line
        name = cursor.word("a predicate")
        register = self._scopes.find_register(name)
        if not isinstance(register, Register) or register.type != "pred":
            raise PtxError(f"a guard is a register of type .pred, {name} is none", line)
        return Not(register) if negated else register


def skip_line(cursor: Cursor, line: int) -> None:
    """Pass what is left of a line: directives for debuggers end with it."""
    while cursor.line == line and cursor.token.kind != "end" and cursor.token.text not in ("{", "}"):
        cursor.next()
