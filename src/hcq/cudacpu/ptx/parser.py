"""Modules: directives, variables and functions at the outermost level. Bodies are in bodies.py."""

from __future__ import annotations

import re

from hcq.cudacpu.ptx.bodies import Body, skip_line
from hcq.cudacpu.ptx.cursor import Cursor
from hcq.cudacpu.ptx.declarations import LINKAGES, parameters, variables
from hcq.cudacpu.ptx.errors import LaterVersion, PtxError
from hcq.cudacpu.ptx.expressions import begins_constant, constant
from hcq.cudacpu.ptx.nodes import Function, Module

_NEWEST = 9  # the major version of PTX whose instructions are known
_OF_FUNCTIONS = {
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".maxclusterrank", ".reqnctapercluster",
    ".explicitcluster", ".blocksareclusters", ".noreturn", ".abi_preserve", ".abi_preserve_control",
}  # fmt: skip


def parse(text: str) -> Module:
    """The module that the text says. Raises PtxError, with the line and what was expected."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._cursor = Cursor(text.replace("\0", ""))
        self._module = Module()
        self._functions: dict[str, Function] = {}

    def parse(self) -> Module:
        cursor = self._cursor
        if cursor.token.text != ".version":
            cursor.fail("'.version' at the start of a module")
        try:
            self._directives()
        except RecursionError:
            raise PtxError("parentheses or signs nest too deep", cursor.line) from None
        if not self._module.target:
            raise PtxError("expected '.target' in a module, found none", cursor.line)
        self._module.functions = list(self._functions.values())
        return self._module

    def _directives(self) -> None:
        cursor = self._cursor
        while cursor.token.kind != "end":
            if cursor.token.kind == "dot":
                self._directive()
            elif not cursor.take(";"):
                cursor.fail("a directive")

    def _directive(self) -> None:
        cursor, linkage = self._cursor, ""
        while cursor.token.text in LINKAGES:
            linkage = LINKAGES[cursor.next().text]
        token = cursor.next()
        dot = token.text
        if dot in (".entry", ".func"):
            self._function(dot == ".entry", linkage)
        elif dot in (".global", ".const", ".shared", ".local", ".param"):
            self._module.variables += variables(cursor, dot[1:], linkage)
        elif linkage:
            raise PtxError(f"expected a function or a variable after .{linkage}, found {dot!r}", token.line)
        elif dot == ".version":
            self._version()
        elif dot == ".target":
            self._module.lines["target"] = token.line
            names = [cursor.word("a target")]
            while cursor.take(","):
                names.append(cursor.word("a target"))
            self._module.target = tuple(names)
        elif dot == ".address_size":
            self._module.lines["address_size"] = token.line
            self._module.address_size = cursor.integer("the address size in bits")
        elif dot == ".file":
            number = cursor.integer("the file's number")
            if cursor.token.kind != "string":
                cursor.fail("the file's name")
            self._module.files[number] = _unescape(cursor.next().text)
            skip_line(cursor, token.line)
        elif dot == ".section":
            self._section()
        elif dot == ".pragma":
            while cursor.token.kind == "string" or cursor.token.text == ",":
                cursor.next()
            cursor.expect(";")
        elif dot == ".alias":
            name = cursor.word("a function")
            cursor.expect(",")
            self._module.aliases[name] = cursor.word("a function")
            cursor.expect(";")
        elif dot == ".loc":
            skip_line(cursor, token.line)
        else:
            raise PtxError(f"expected a directive of a module, found {dot!r}", token.line)

    def _version(self) -> None:
        cursor = self._cursor
        match = re.fullmatch(r"(\d+)\.(\d+)", cursor.token.text)
        if match is None:
            cursor.fail("a version as 8.0")
        line = cursor.next().line
        self._module.version = (int(match[1]), int(match[2]))
        if self._module.version[0] > _NEWEST:
            raise LaterVersion(f".version {match[0]}: versions to {_NEWEST}.x are known here", line)

    def _section(self) -> None:
        cursor = self._cursor
        while cursor.token.text != "{" and cursor.token.kind != "end":
            cursor.next()
        depth = 0
        while True:
            token = cursor.next()
            depth += (token.text == "{") - (token.text == "}")
            if token.kind == "end":
                cursor.fail("'}' after a section")
            if not depth:
                return

    def _function(self, entry: bool, linkage: str) -> None:
        cursor = self._cursor
        while cursor.token.text == ".attribute":
            cursor.next()
            while not cursor.take(")"):
                cursor.next()
        returns = [] if entry else parameters(cursor)
        line = cursor.line
        name = cursor.word("the function's name")
        function = Function(name, entry, returns, parameters(cursor), line, linkage)
        while cursor.token.kind == "dot" and cursor.token.text in _OF_FUNCTIONS | {".pragma"}:
            self._of_function(function)
        if cursor.token.text == "{":
            function.body = Body(cursor, function).parse()
        else:
            cursor.expect(";", "or a body")
        self._keep(function)

    def _of_function(self, function: Function) -> None:
        cursor = self._cursor
        directive = cursor.next().text
        if directive == ".pragma":
            while cursor.token.kind == "string" or cursor.token.text == ",":
                cursor.next()
            cursor.take(";")
            return
        values: list[int] = []
        while begins_constant(cursor):
            values.append(int(constant(cursor).value))
            if not cursor.take(","):
                break
        function.directives[directive[1:]] = tuple(values)

    def _keep(self, function: Function) -> None:
        before = self._functions.get(function.name)
        if before is None or before.body is None:
            if before is not None:
                function.linkage = function.linkage or before.linkage
                function.directives = {**before.directives, **function.directives}
                if before.linkage == "extern" and function.body is not None and function.linkage == "extern":
                    function.linkage = "visible"
            self._functions[function.name] = function
        elif function.body is not None:
            raise PtxError(f"{function.name} has two bodies, the first in line {before.line}", function.line)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
