"""The list of promises (promises.toml), and which of them have a test. Reads sources, imports no test."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).parent
EXCUSED, ELSEWHERE = "not_begun", "elsewhere"  # the tables of promises.toml that hold no promises


@dataclass(frozen=True)
class Promises:
    """Texts by id; reasons by id for those that have no test on purpose; tests beside the suite by id."""

    texts: dict[str, str]
    excused: dict[str, str]
    elsewhere: dict[str, list[str]]


@dataclass(frozen=True)
class Coverage:
    """Tests by promise id; ids that tests name and that do not exist, with the tests that name them."""

    tests: dict[str, list[str]]
    strangers: dict[str, list[str]]


def load() -> Promises:
    with open(HERE / "promises.toml", "rb") as file:
        tables = tomllib.load(file)
    excuses, elsewhere = tables.pop(EXCUSED), tables.pop(ELSEWHERE)
    texts = {f"{area}.{name}": text for area, table in tables.items() for name, text in table.items()}
    excused: dict[str, str] = {}
    for pattern, reason in excuses.items():
        matches = [id for id in texts if fnmatchcase(id, pattern)]
        if not matches:
            raise ValueError(f"promises.toml, [{EXCUSED}]: {pattern!r} matches no promise")
        excused |= dict.fromkeys(matches, reason)
    if strangers := elsewhere.keys() - texts.keys():
        raise ValueError(f"promises.toml, [{ELSEWHERE}]: no promises called {', '.join(strangers)}")
    return Promises(texts, excused, elsewhere)


def coverage(folders: Iterable[Path] = ()) -> Coverage:
    """Which test holds which promise: those of the suite, of further folders of tests, and those named as elsewhere."""
    listed = load()
    texts = listed.texts
    tests = {id: list(names) for id, names in listed.elsewhere.items()}
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
