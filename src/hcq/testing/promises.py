"""The list of promises (promises.toml), and which of them have a test. Reads sources, imports no test."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).parent
LISTS = ("not_begun", "not_here")  # tables of promises.toml that excuse promises, by pattern, with a reason


@dataclass(frozen=True)
class Promises:
    """Texts by id; reasons by id for those that have no test on purpose."""

    texts: dict[str, str]
    excused: dict[str, str]


@dataclass(frozen=True)
class Coverage:
    """Tests by promise id; ids that tests name and that do not exist, with the tests that name them."""

    tests: dict[str, list[str]]
    strangers: dict[str, list[str]]


def load() -> Promises:
    with open(HERE / "promises.toml", "rb") as file:
        tables = tomllib.load(file)
    texts = {f"{area}.{name}": text for area, table in tables.items() if area not in LISTS for name, text in table.items()}
    excused = {}
    for patterns in LISTS:
        for pattern, reason in tables[patterns].items():
            matches = [id for id in texts if fnmatchcase(id, pattern)]
            if not matches:
                raise ValueError(f"promises.toml, [{patterns}]: {pattern!r} matches no promise")
            excused |= dict.fromkeys(matches, reason)
    return Promises(texts, excused)


def coverage(folders: Iterable[Path] = ()) -> Coverage:
    """Which test holds which promise: those of the suite, and of further folders of tests."""
    texts = load().texts
    tests: dict[str, list[str]] = {}
    strangers: dict[str, list[str]] = {}
    for folder in (HERE / "suite", *folders):
        for path in sorted(folder.rglob("test_*.py")):
            for test, ids in _marked(ast.parse(path.read_text())):
                for id in ids:
                    (tests if id in texts else strangers).setdefault(id, []).append(f"{path.name}::{test}")
    return Coverage(tests, strangers)


def missing(folders: Iterable[Path] = ()) -> dict[str, str]:
    """The promises that have neither a test nor a reason, with their texts."""
    listed, held = load(), coverage(folders).tests
    return {id: text for id, text in listed.texts.items() if id not in held and id not in listed.excused}


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """(test, promise ids) of each function decorated with promise(...) or pytest.mark.promise(...)."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and _name(mark.func) == "promise":
                ids = [arg.value for arg in mark.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                yield node.name, ids


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
