"""LLVM's own printed form of a module, taken apart: functions, blocks, instructions, names.

What is read here is what LLVM prints of a module it has parsed, after the values of a kernel were renamed to
`hcq.a0`, `hcq.b3`, `hcq.v17` (LLVM Language Reference, "Identifiers"): one instruction a line, all blocks labelled, no
name that needs quotes. A user's text is never read. What does not live here: what is done with it (llvm_grid).
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Patterns as text: re compiles and keeps them when a kernel first needs them.
# A global's name, or a string (skipped by whoever asks for names: group 1 is None there).
_GLOBAL = r'"[^"]*"|(@"[^"]*"|@[-\w$.]+)'
_IN_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_$."
_LABEL = r"hcq\.b(\d+):"
_INSTRUCTION = r"  (?:%hcq\.v(\d+) = )?(?:(?:tail|musttail|notail) )?(\w+)"
_VALUE = r"%hcq\.v(\d+)"
_SUCCESSOR = r"label %hcq\.b(\d+)"
_DEBUG = r", ![Dd](?:bg|IAssignID) !\d+"
_INCOMING = r"\[ (.+?), %hcq\.b(\d+) \]"


class Function(NamedTuple):
    """A function definition: its lines from `define` to `}`, and where they stand in the module."""

    name: str  # as printed, with @
    first: int
    last: int
    names: frozenset[str]  # globals it mentions; itself if it calls itself


class Instruction:
    """One instruction. `value` is the number of what it defines (-1: nothing), `uses` the numbers it reads."""

    __slots__ = ("op", "text", "uses", "value")

    def __init__(self, text: str) -> None:
        match = re.match(_INSTRUCTION, text)
        if match is None:
            raise ValueError(f"not an instruction: {text!r}")
        self.text = text
        self.op = match[2]
        self.value = int(match[1]) if match[1] else -1
        self.uses = [int(v) for v in re.findall(_VALUE, text[match.end() :])]

    def successors(self) -> list[int]:
        """Blocks a terminator can go to."""
        return [int(b) for b in re.findall(_SUCCESSOR, self.text)]

    def incoming(self) -> list[tuple[str, int]]:
        """(value as printed, block) for each way into a phi."""
        return [(value, int(block)) for value, block in re.findall(_INCOMING, self.text)]


class Metadata:
    """Numbers new metadata nodes after those that the module has."""

    def __init__(self, highest: int) -> None:
        self._next = highest + 1
        self.lines: list[str] = []

    def add(self, body: str) -> str:
        """Add a node; `{0}` in `body` stands for the node itself."""
        name = f"!{self._next}"
        self._next += 1
        self.lines.append(f"{name} = {body.replace('{0}', name)}")
        return name


def global_names(text: str) -> set[str]:
    """The globals that a piece of printed IR mentions, as printed; strings are skipped."""
    return {name for name in _globals(text) if name}


def functions(lines: list[str]) -> list[Function]:
    """The functions defined in a printed module, given its lines."""
    found, first = [], -1
    for number, line in enumerate(lines):
        if line.startswith("define "):
            first = number
        elif line == "}" and first >= 0:
            header = _globals(lines[first])
            name = next(n for n in header if n)
            names = global_names("\n".join(lines[first + 1 : number])) | (set(header) - {name, ""})
            found.append(Function(name, first, number, frozenset(names)))
            first = -1
    return found


def _globals(text: str) -> list[str]:
    """The globals that a text mentions, in order, with an empty one for each string."""
    if '"' in text:
        return re.findall(_GLOBAL, text)
    # Most modules have no string here, and are compiled before re would have compiled the pattern.
    parts = text.split("@")[1:]
    return [f"@{part[:length]}" for part in parts if (length := len(part) - len(part.lstrip(_IN_NAMES)))]


def blocks(lines: list[str]) -> list[list[Instruction]]:
    """The blocks of a renamed function, given its lines from `define` to `}`. Debug information is left out."""
    result: list[list[Instruction]] = []
    texts: list[str] = []
    for line in lines[1:-1]:
        if not line:
            continue
        if line.startswith("hcq.b"):
            label = re.match(_LABEL, line)
            if label is None or int(label[1]) != len(result):
                raise ValueError(f"unexpected block label: {line!r}")
            _close(result, texts)
            result.append([])
        elif line.lstrip().startswith("#dbg_"):
            continue
        elif line.startswith(("  ]", "   ")):
            texts[-1] += "\n" + re.sub(_DEBUG, "", line)
        else:
            texts.append(re.sub(_DEBUG, "", line))
    _close(result, texts)
    return result


def _close(result: list[list[Instruction]], texts: list[str]) -> None:
    if result:
        result[-1] = [Instruction(text) for text in texts]
    texts.clear()


def quoted(name: str) -> str:
    """A global's name as LLVM prints it, with @."""
    if name and not name[0].isdigit() and not name.lstrip(_IN_NAMES):
        return "@" + name
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in (0x22, 0x5C) else f"\\{c:02X}" for c in name.encode("utf-8"))
    return f'@"{escaped}"'


def closing(text: str, at: int) -> int:
    """Index of the parenthesis that closes the one at `at`; strings are skipped."""
    depth, quotes = 0, False
    for i in range(at, len(text)):
        c = text[i]
        if c == '"':
            quotes = not quotes
        elif quotes:
            continue
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if not depth:
                return i
    raise ValueError(f"unbalanced parentheses: {text!r}")


def arguments(text: str) -> list[str]:
    """What stands between commas at the outermost level of `text`."""
    parts, depth, start, quotes = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quotes = not quotes
        elif quotes:
            continue
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def highest_metadata(lines: list[str]) -> int:
    """The highest number of a metadata node in a printed module, -1 where it has none."""
    heads = (line[1:].split(" = ", 1)[0] for line in lines if line.startswith("!") and " = " in line)
    return max((int(head) for head in heads if head.isdecimal()), default=-1)
