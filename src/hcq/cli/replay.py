"""`hcq replay FILE --device D [--compare D2]`: run a saved graph, find the first command two devices differ in."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from hcq.cli.output import DONE, FAILED, Failure, Mistake, console, print_json


def replay(path: Path, device: str, compare: str | None, yes: bool, trust_binaries: bool, as_json: bool) -> int:
    """Run the file on `device`; with `compare` on that too, command by command."""
    from hcq.errors import HCQError
    from hcq.graph.saved import SavedGraph

    for name in filter(None, (device, compare)):
        _check_runs(name)
    try:
        saved = SavedGraph(path)
    except (OSError, ValueError) as error:
        raise Mistake(str(error)) from None
    names = sorted({program["name"] for program in saved.programs})
    what = (
        "loads its binaries, which nothing has checked, and runs them" if trust_binaries else "compiles and runs them"
    )
    if names and not _allowed(f"{path} brings {len(names)} programs ({', '.join(names[:8])}); replaying {what}.", yes):
        raise Mistake("nothing was run: say --yes where you trust this file")
    try:
        one = saved.on(device, trust_binaries)
        if compare is None:
            one.run()
            return _show(saved, one, as_json)
        found = saved.compare(one, saved.on(compare, trust_binaries))
    except (HCQError, ValueError, RuntimeError) as error:
        raise Failure(f"{path} could not be replayed: {error}") from None
    finally:
        saved.close()
    if as_json:
        print_json({"commands": len(saved.commands), "difference": None if found is None else found._asdict()})
    elif found is None:
        console().print(f"{len(saved.commands)} commands: {device} and {compare} agree after each")
    else:
        here, there = found.values
        line = f" ({found.line})" if found.line else ""
        console().print(
            f"command {found.command}, {found.name}{line}, is the first that differs: buffer {found.buffer}, element "
            f"{found.element}: {here!r} on {device}, {there!r} on {compare}",
            soft_wrap=True,
        )
    return DONE if found is None else FAILED


def _check_runs(device: str) -> None:
    from hcq import Device

    opened = Device[device]
    if opened.runtime is None:
        raise Mistake(f"{opened.dname} has no queues or kernels to replay a graph on: it only holds data")


def _allowed(message: str, yes: bool) -> bool:
    print(message, file=sys.stderr)
    if yes:
        return True
    if not sys.stdin.isatty():
        return False
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show(saved: Any, running: Any, as_json: bool) -> int:
    rows = []
    for number, buf in enumerate(saved.described["buffers"]):
        data = running.read([number, 0, buf["nbytes"]])
        rows.append({"buffer": number, **buf, "sha256": hashlib.sha256(data).hexdigest()})
    if as_json:
        print_json({"commands": len(saved.commands), "buffers": rows})
        return DONE
    out = console()
    out.print(f"{len(saved.commands)} commands ran on {running.dname}")
    for row in rows:
        named = f" ({', '.join(row['inputs'])})" if row["inputs"] else ""
        out.print(
            f"buffer {row['buffer']}{named}: {row['nbytes']} bytes of {row['dtype']}, sha256 {row['sha256'][:16]}"
        )
    return DONE
