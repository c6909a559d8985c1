"""`hcq cache ls|explain|verify|clear`: what is in the compile cache, and why something is or isn't."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq.cli.output import DONE, FAILED, Mistake, bytes_text, console, print_json

if TYPE_CHECKING:
    from hcq.cache import CachedEntry

SHOWN_SOURCE = 60
"""Characters of a source that are shown to recognise it by."""


def ls(as_json: bool) -> int:
    """List the entries, the last used first."""
    from hcq import cache

    entries = sorted(cache.entries(), key=lambda entry: entry.used, reverse=True)
    stats = cache.stats()
    if as_json:
        rows = [{"path": entry.path, "bytes": entry.size, "used": entry.used, "key": _key(entry)} for entry in entries]
        print_json({"directory": cache.directory, "limit_bytes": stats.limit_bytes, "entries": rows})
        return DONE
    from rich import box
    from rich.table import Table

    out = console()
    if entries:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("entry", "size", "used", "compiler", "source begins"):
            table.add_column(
                heading, justify="right" if heading in ("size", "used") else "left", no_wrap=heading == "entry"
            )
        for entry in entries:
            compiler = entry.parts.get("cachekey", b"").decode(errors="replace")
            table.add_row(Path(entry.path).name[:12], bytes_text(entry.size), _ago(entry.used), compiler, _begin(entry))
        out.print(table)
    total = sum(entry.size for entry in entries)
    place = cache.directory or "memory only"
    out.print(
        f"{len(entries)} entries, {bytes_text(total)} of {bytes_text(stats.limit_bytes)}, in {place}", soft_wrap=True
    )
    return DONE


def explain(source: str, device: str | None, as_json: bool) -> int:
    """Say whether compiling the file `source` (`-`: standard input) would find its library, and why not."""
    from hcq import Device, cache

    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{source} can't be read as text: {error}") from None
    opened = Device[device]
    found = cache.explain(text, opened.compiler)
    if as_json:
        print_json({"device": opened.dname, **found._asdict()})
    else:
        print(f"{opened.dname}: {'hit' if found.hit else 'miss'}: {found.reason}")
    return DONE


def verify(remove: bool, as_json: bool) -> int:
    """Read every entry; FAILED where one is damaged and stays."""
    from hcq import cache

    damaged = cache.verify(remove)
    if as_json:
        print_json([{**damage._asdict(), "removed": remove} for damage in damaged])
    else:
        for damage in damaged:
            print(f"{damage.path}: {damage.reason}{' (removed)' if remove else ''}")
        count = sum(1 for _ in cache.entries())
        print(f"{len(damaged)} damaged; {count} entries{' left' if remove else ''}. A damaged entry is never used.")
    return FAILED if damaged and not remove else DONE


def clear(yes: bool) -> int:
    """Delete every entry, after asking where somebody is there to answer."""
    from hcq import cache

    if not yes and sys.stdin.isatty():
        import typer

        if not typer.confirm(f"delete all {cache.stats().entries} entries in {cache.directory or 'memory'}?"):
            return FAILED
    print(f"{cache.clear()} entries deleted")
    return DONE


# Helpers


def _key(entry: CachedEntry) -> dict[str, Any]:
    return {name: value.decode(errors="replace") for name, value in entry.parts.items()}


def _begin(entry: CachedEntry) -> str:
    text = " ".join(entry.parts.get("source", b"").decode(errors="replace").split())
    return text[:SHOWN_SOURCE] + ("..." if len(text) > SHOWN_SOURCE else "")


def _ago(moment: float) -> str:
    seconds = max(0, int(time.time() - moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
