"""PTX text to tokens. What they mean is the parser's."""

from __future__ import annotations

import re
from typing import NamedTuple

from hcq.cudacpu.ptx.errors import PtxError

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f\v]+|//[^\n]*)
  | (?P<lines>\n|/\*.*?\*/)
  | (?P<word>[A-Za-z_$%][A-Za-z0-9_$]*)
  | (?P<dot>\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)
  | (?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+U?)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[{}()\[\],;:@!|+\-*/&^~<>=?%])
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is word, dot, float, int, string, mark or end; `line` counts from 1."""

    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """All tokens of the text; the last is of kind "end". Raises PtxError at a character that begins none."""
    found: list[Token] = []
    at, line, end = 0, 1, len(text)
    match = _TOKEN.match
    while at < end:
        hit = match(text, at)
        if hit is None:
            shown = text[at : at + 20].split("\n")[0]
            raise PtxError(f"no token of PTX begins with {shown!r}", line)
        kind = hit.lastgroup
        at = hit.end()
        if kind == "space":
            continue
        if kind == "lines":
            line += hit.group().count("\n")
            continue
        found.append(Token(kind or "", hit.group(), line))
    found.append(Token("end", "the end of the text", line))
    return found
