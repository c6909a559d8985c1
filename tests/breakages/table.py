"""What a breakage of the sources is, and how the tables have it (lowering.txt, executor.txt).

A table names groups of tests (`tests NAME: arguments of pytest, with | between`), then breakages: a line
`what is wrong | file | group`, lines `- ` with what the file has once, and lines `+ ` with what it has instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Broken:
    """`old`, which `file` has once, becomes `new`; then one of `tests` (arguments of pytest) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def target(self) -> str:
        """The library that has to be built anew; empty for Python."""
        if not self.file.startswith("native/"):
            return ""
        return "cudacpu" if self.file.startswith("native/cudacpu/") else "_native"

    def changed(self, text: str) -> str:
        """The broken source. Raises ValueError where the file doesn't have the old text once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {self.file} has {count} times\n{self.old}")
        return text.replace(self.old, self.new)


def read(file: Path) -> list[Broken]:
    """The breakages of a table."""
    groups: dict[str, tuple[str, ...]] = {}
    found = []
    for part in file.read_text().split("\n\n"):
        lines = [line for line in part.splitlines() if not line.startswith("#")]
        if lines and lines[0].startswith("tests "):
            for line in lines:
                name, _, arguments = line.removeprefix("tests ").partition(": ")
                groups[name] = tuple(arguments.split(" | "))
        elif lines:
            name, where, group = lines[0].split(" | ")
            old, new = ("\n".join(line[2:] for line in lines[1:] if line[0] == sign) for sign in "-+")
            found.append(Broken(name, where, old, new, groups[group]))
    return found


def everything() -> list[Broken]:
    """All tables', in order."""
    return [each for file in sorted(Path(__file__).parent.glob("*.txt")) for each in read(file)]
