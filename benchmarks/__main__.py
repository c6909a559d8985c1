"""The command: `python -m benchmarks`, from the root of a checkout."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import load, report
from benchmarks.peers import PEERS, PeerMissing, interpreter
from benchmarks.rows import ROWS, Row
from benchmarks.run import Run

HERE = Path(__file__).parent


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: less than a minute")
    parser.add_argument("--rows", help="only these, by the start of an id or by group: launch,copy.copyin (see --list)")
    parser.add_argument("--peers", help=f"only these, of {','.join(PEERS)}; hcq and raw are always there")
    parser.add_argument("--rounds", type=int, help="rounds for each row")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    parser.add_argument("--json", type=Path, help="where the figures go (default: benchmarks/results/DATE.json)")
    parser.add_argument("--docs", action="store_true", help="also put the table into docs/benchmarks.md")
    parser.add_argument("--show", type=Path, help="show a kept JSON (with --docs: put it there), measure nothing")
    return parser.parse_args(argv)


def chosen(pattern: str | None) -> list[Row]:
    if not pattern:
        return list(ROWS)
    wanted = [p.strip() for p in pattern.split(",") if p.strip()]
    rows = [row for row in ROWS if any(row.id.startswith(p) or row.group == p for p in wanted)]
    unknown = [p for p in wanted if not any(row.id.startswith(p) or row.group == p for row in ROWS)]
    if unknown:
        groups = ", ".join(dict.fromkeys(row.group for row in ROWS))
        sys.exit(f"no row begins with {', '.join(unknown)}; groups are {groups}, and --list shows all rows")
    return rows


def measure(args: argparse.Namespace, rows: list[Row], console: Console) -> dict[str, Any]:
    peers = None
    if args.peers:
        peers = {"hcq", "tghcq", "raw", *(p.strip() for p in args.peers.split(","))}
        if unknown := peers - set(PEERS):
            sys.exit(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    for key in peers or PEERS:
        try:
            with console.status(f"the virtual environment of {PEERS[key].label}"):
                interpreter(PEERS[key])
        except PeerMissing as reason:
            console.print(f"{PEERS[key].label} is missing: {reason}")
    document: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": args.quick,
        "machine": load.machine(),
        "load": {"before": list(os.getloadavg())},
        "rows": [],
    }
    rounds = args.rounds or (3 if args.quick else 5)
    began = time.monotonic()
    with (
        Run(rounds, 0.03 if args.quick else 0.12, args.quick, peers) as run,
        Progress(
            TextColumn("{task.description}", justify="left"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress,
    ):
        bar = progress.add_task("", total=len(rows))
        for row in rows:
            document["rows"].append(
                run.row(row, lambda what, row=row: progress.update(bar, description=f"{row.id}: {what}"))
            )
            progress.advance(bar)
        document["versions"], document["missing"] = run.versions(), run.missing()
    others = [row["others"] for row in document["rows"]]
    document["load"] |= {"after": list(os.getloadavg()), "others": statistics.median(others)}
    document["seconds"] = round(time.monotonic() - began, 1)
    return document


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    rows = [row for row in chosen(args.rows) if not (args.quick and row.heavy)]
    if args.list:
        for row in rows:
            console.print(f"{row.id:24} {row.title}", highlight=False)
        return 0
    if args.show:
        document = json.loads(args.show.read_text(encoding="utf-8"))
    else:
        document = measure(args, rows, console)
        path = args.json or HERE / "results" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        report.write_json(document, path)
    console.print(report.table(document))
    report.summary(document, console)
    if not args.show:
        console.print(f"took {document['seconds']:.0f} s; kept as {path.name} beside the others in {path.parent.name}/")
    if args.docs:
        report.write_markdown(document, HERE.parent / "docs" / "benchmarks.md")
    failed = report.failures(document)
    for each in failed:
        print(f"failed: {each}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
