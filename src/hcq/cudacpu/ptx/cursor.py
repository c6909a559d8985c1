"""A place among the tokens of a text: look, take, expect. Errors say what was expected."""

from __future__ import annotations

from typing import NoReturn

from hcq.cudacpu.ptx.errors import PtxError
from hcq.cudacpu.ptx.lexer import Token, tokens

MOST_NAMES = 1 << 20  # of one declaration, as %r<100>: each is an object


class Cursor:
    """Tokens in order. Only one parser uses it."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0
        self.token: Token = self._tokens[0]

    @property
    def line(self) -> int:
        return self.token.line

    def peek(self, ahead: int = 1) -> Token:
        """The token `ahead` of this one."""
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else self._tokens[-1]

    def next(self) -> Token:
        """Take this token."""
        taken = self.token
        if taken.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return taken

    def take(self, text: str) -> bool:
        """Take this token if it is written so."""
        if self.token.text == text and self.token.kind != "string":
            self.next()
            return True
        return False

    def expect(self, text: str, where: str = "") -> Token:
        """Take a token that must be written so."""
        if self.token.text != text or self.token.kind == "string":
            self.fail(f"{text!r}" + (f" {where}" if where else ""))
        return self.next()

    def word(self, what: str) -> str:
        """Take a name."""
        if self.token.kind != "word":
            self.fail(what)
        return self.next().text

    def integer(self, what: str = "an integer") -> int:
        """Take an integer literal."""
        if self.token.kind != "int":
            self.fail(what)
        return integer(self.next().text)

    def count(self, what: str) -> int:
        """Take the number of a range of names."""
        line = self.line
        number = self.integer(what)
        if number > MOST_NAMES:
            raise PtxError(f"{number} names: at most {MOST_NAMES} are taken", line)
        return number

    def fail(self, expected: str) -> NoReturn:
        """Raise PtxError: something else was expected here."""
        seen = self.token.text if self.token.kind == "end" else repr(self.token.text)
        raise PtxError(f"expected {expected}, found {seen}", self.token.line)


def integer(text: str) -> int:
    """The value of an integer literal: decimal, 0x, 0b, octal after a 0; a U may follow."""
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text[:2] in ("0b", "0B"):
        return int(text[2:], 2)
    if len(text) > 1 and text[0] == "0" and text.isdigit() and all(c < "8" for c in text):
        return int(text, 8)
    return int(text)
