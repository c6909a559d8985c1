"""Results as a table for people (rich), as markdown for docs/benchmarks.md, and as JSON. Nothing is measured here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers import OURS
from benchmarks.rows import NOT_BEGUN, ROWS, Row
from benchmarks.run import LEFT_OUT

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
SCALES = {
    "ns": (1e9, "ns"),
    "us": (1e6, "us"),
    "ms": (1e3, "ms"),
    "MiB": (1.0, "MiB"),
    "%": (100.0, "%"),
    "x": (1.0, "x"),
    "plain": (1.0, ""),
}

Result = dict[str, Any]


def figure(row: Row, value: float, with_unit: bool = True) -> str:
    if row.unit in ("GB/s", "GFLOP/s"):
        number, unit = row.size / value / 1e9, row.unit
    else:
        scale, unit = SCALES[row.unit]
        number = value * scale
    if row.unit == "plain":
        return f"{number:.0f}"
    digits = 3 if abs(number) < 0.0995 else 2 if abs(number) < 9.95 else 1 if abs(number) < 99.5 else 0
    return f"{number:.{digits}f}" + (f" {unit}" if with_unit and unit else "")


def name(entry: Result) -> str:
    """How an entry is called in a table: the peer, then what of it; raw costs by what they are."""
    if (entry["peer"] == "raw" or entry["peer"] in OURS) and entry["label"]:
        return str(entry["label"])
    return f"{entry['peer']} {entry['label']}".strip()


def verdict(row: Row, result: Result) -> str:
    """met, missed (by how much), stated, or why it can't be said."""
    first = result["entries"][0]
    if row.budget is None:
        return ""
    if "median" not in first:
        return "no figure"
    if row.budget.most == float("inf"):
        return "stated"
    if row.budget.of:
        base = next((e for e in result["entries"] if e["label"] == row.budget.of), None)
        if base is None or "ratio" not in base:
            return "nothing to compare with"
        over = 1 / base["ratio"] / row.budget.most
    else:
        over = first["median"] / row.budget.most
    return "met" if over <= 1.0 else f"missed, {over:.2f}x"


def times(ratio: float) -> str:
    return f"{ratio:.3f}x" if ratio < 0.0995 else f"{ratio:.2f}x" if ratio < 9.95 else f"{ratio:.0f}x"


def line(row: Row, entry: Result) -> str:
    if "median" in entry:
        ratio = f" ({times(entry['ratio'])})" if "ratio" in entry else ""
        return f"{name(entry)} {figure(row, entry['median'], False)}{ratio}"
    return f"{name(entry)}: {'missing: ' + entry['missing'] if 'missing' in entry else 'failed: ' + entry['error']}"


def failures(document: dict[str, Any]) -> list[str]:
    """What failed of ours, the raw parts among it: no figure is missing for it."""
    return [
        f"{result['id']}: {name(entry)}: {entry['error']}"
        for result in document["rows"]
        for entry in result["entries"]
        if "error" in entry and (entry["peer"] == "raw" or entry["peer"] in OURS)
    ]


def own(row: Row, result: Result) -> str:
    """Our figure with its spread over the rounds, and the variants of it below."""
    lines = []
    for k, entry in enumerate(e for e in result["entries"] if e["peer"] in OURS):
        if "median" not in entry:
            lines.append(line(row, entry))
            continue
        low, high = sorted((figure(row, entry["min"], False), figure(row, entry["max"], False)), key=float)
        label = f" {entry['label']}" if entry["label"] and k else ""
        lines.append(f"{figure(row, entry['median'])}{label} ({low}-{high})")
        lines += [f"{key}: {extra(row, value)}" for key, value in entry.get("extra", {}).items() if k == 0]
    if result["others"] > 0.1 and row.unit != "%":
        lines.append(f"others used {result['others']:.0%} of the cores")
    return "\n".join(lines)


def extra(row: Row, value: Any) -> str:
    if isinstance(value, float):
        return f"{value * 1e6:.2f} us"
    return ", ".join(value) or "not loaded" if isinstance(value, list) else str(value)


def cells(row: Row, result: Result) -> tuple[str, str, str, str, str, str]:
    entries = [entry for entry in result["entries"] if entry.get("missing") != LEFT_OUT]  # asked for, so no news
    peers = [line(row, e) for e in entries if e["peer"] not in OURS and e["peer"] != "raw"]
    raw = [line(row, e) for e in entries if e["peer"] == "raw"]
    budget = row.budget.text if row.budget else ""
    return row.title, own(row, result), budget, verdict(row, result), "\n".join(peers), "\n".join(raw)


HEADINGS = ("what", "hcq (spread)", "budget", "", "peers (x of hcq's time)", "raw cost (x of hcq's time)")


def by_id(results: list[Result]) -> list[tuple[Row, Result]]:
    rows = {row.id: row for row in ROWS}
    return [(rows[r["id"]], r) for r in results if r["id"] in rows]


def left_out(document: Result) -> list[tuple[str, str]]:
    return [(row.title, row.budget.text if row.budget else "") for row in ROWS if row.heavy and document["quick"]]


def table(document: Result) -> Table:
    shown = Table(show_lines=True, title=heading(document))
    for k, column in enumerate(HEADINGS):
        shown.add_column(column, overflow="fold", justify="left", min_width=(14, 14, 8, 6, 20, 20)[k])
    for row, result in by_id(document["rows"]):
        parts = list(cells(row, result))
        if parts[3]:
            color = "green" if parts[3] == "met" else "red" if parts[3].startswith("missed") else "yellow"
            parts[3] = f"[{color}]{parts[3]}[/{color}]"
        shown.add_row(*parts)
    for what, budget in left_out(document):
        shown.add_row(what, "left out by --quick", budget, "", "", "")
    for what, budget in NOT_BEGUN:
        shown.add_row(what, "not begun", budget, "", "", "")
    return shown


def heading(document: Result) -> str:
    machine, load = document["machine"], document["load"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['Python']}; "
        f"{document['date']}; load average {load['before'][0]:.2f} before, {load['after'][0]:.2f} after; "
        f"others used {load['others']:.0%} of the cores"
    )


def markdown(document: Result) -> str:
    """The generated part of docs/benchmarks.md."""
    versions = "; ".join(
        f"{peer}: {', '.join(f'{k} {v}' for k, v in versions.items())}"
        for peer, versions in document["versions"].items()
        if versions
    )
    parts = [f"{heading(document)}.", "", f"Versions: {versions}.", ""]
    parts += [f"Missing: {peer}: {reason}." for peer, reason in document["missing"].items()]
    parts += ["", "| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    for row, result in by_id(document["rows"]):
        text = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells(row, result)]
        parts.append("| " + " | ".join(text) + " |")
    parts += [f"| {what} | left out by --quick | {budget} | | | |" for what, budget in left_out(document)]
    parts += [f"| {what} | not begun | {budget} | | | |" for what, budget in NOT_BEGUN]
    notes = [f"- {row.title}: {row.note}" for row, _ in by_id(document["rows"]) if row.note]
    return "\n".join([*parts, "", *notes, ""])


def write_markdown(document: Result, path: Path) -> None:
    """Puts the figures between the two marks of `path`, which keeps everything else."""
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path.name} has no lines {BEGIN} and {END} to put the figures between")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    inside = f"{BEGIN}\n{markdown(document)}{END}"
    path.write_text(pattern.sub(lambda _: inside, text, count=1), encoding="utf-8")


def write_json(document: Result, path: Path) -> None:
    def short(value: Any) -> Any:  # four digits are more than any figure is worth
        if isinstance(value, float):
            return float(f"{value:.4g}")
        if isinstance(value, dict):
            return {k: short(v) for k, v in value.items()}
        return [short(v) for v in value] if isinstance(value, list) else value

    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in short(document).items() if key != "rows"}
    rows = ",\n  ".join(json.dumps(row) for row in short(document["rows"]))
    path.write_text(f'{json.dumps(head)[:-1]},\n "rows": [\n  {rows}\n ]}}\n', encoding="utf-8")


def summary(document: Result, console: Console) -> None:
    """One line at the end: how many budgets are met, and which are not."""
    verdicts = {row.id: verdict(row, result) for row, result in by_id(document["rows"]) if row.budget}
    met = sum(v == "met" for v in verdicts.values())
    console.print(f"{met} of {sum(v != 'stated' for v in verdicts.values())} budgets met")
    for row_id, said in verdicts.items():
        if said not in ("met", "stated"):
            console.print(f"  {row_id}: {said}")
