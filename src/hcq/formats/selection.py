"""Which tensors of a file are meant by names and patterns. What does not live here: tensors."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable

from hcq.errors import UnknownTensor

_PATTERN = re.compile(r"[*?[]")


def select(names: str | Iterable[str] | None, known: Collection[str], where: str) -> list[str]:
    """Those of `known` that `names` means, in the order of `known`: None is all; a name is itself; with `*`, `?` or
    `[...]` it is a pattern as in a shell.

    UnknownTensor, a KeyError, for a name that isn't there, or a pattern that nothing matches, naming the nearest;
    TypeError for others.
    """
    if names is None:
        return list(known)
    asked = [names] if isinstance(names, str) else list(names)
    found: set[str] = set()
    for name in asked:
        if not isinstance(name, str):
            raise missing(name, known, where)
        if name in known:
            found.add(name)
            continue
        matches = _matches(name, known) if _PATTERN.search(name) else []
        if not matches:
            raise missing(name, known, where, is_pattern=_PATTERN.search(name) is not None)
        found.update(matches)
    return [name for name in known if name in found]


def missing(name: object, known: Collection[str], where: str, is_pattern: bool = False) -> Exception:
    """What to raise for a name that isn't there, or a pattern that nothing matches: see `select`."""
    if not isinstance(name, str):
        return TypeError(f"names of tensors are text, not {name!r:.60}")
    return UnknownTensor(_reason(name, known, where, is_pattern))


def _matches(pattern: str, known: Iterable[str]) -> list[str]:
    match = re.compile(fnmatch.translate(pattern)).match
    return [name for name in known if match(name)]


def _reason(name: str, known: Collection[str], where: str, is_pattern: bool) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 3) if len(known) <= 20_000 else []
    hint = f"; the nearest are {', '.join(map(repr, near))}" if near else ""
    if is_pattern:
        return f"{where} has no tensor that matches {name!r} (it has {len(known)})"
    return f"{where} has no tensor {name!r} (it has {len(known)}){hint}"
