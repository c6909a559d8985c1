"""Pictures of a graph: SVG written here, or text for Graphviz.

A column is a queue, time goes down; lines across are waits that were kept. What does not live here: the plan.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq.runtime import lines as places_in_code

if TYPE_CHECKING:
    from hcq.graph.graph import Graph
    from hcq.graph.nodes import Node

_WIDTH, _HEIGHT, _STEP, _COLUMN = 150, 24, 40, 190
_COLOURS = {"launch": "#cfe3ff", "copy": "#d8f0d2", "host": "#f3e3c3"}
_OTHER = "#e8e8e8"
_DOT = (".dot", ".gv")


def draw(graph: Graph, path: str | Path | None, dot: bool) -> str:
    """The text of the picture; also written to `path`, whose name may ask for DOT."""
    suffix = None if path is None else Path(path).suffix.lower()
    if suffix not in (None, ".svg", *_DOT):
        raise ValueError(f"{str(path)!r}: a graph is drawn as an SVG (.svg) or for Graphviz (.dot, .gv)")
    dot = dot or suffix in _DOT
    places = list(_places(graph))
    text = _dot(places) if dot else _svg(places)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _places(graph: Graph) -> Any:
    """(column, row, node, waits) of each command, in the order of their places; column is (part, lane, title)."""
    row = 0
    for number, part in enumerate(graph.parts):
        plan = getattr(part, "plan", None)
        if plan is None:
            for node in (graph.nodes[index] for index in sorted(part.indices)):
                yield (number, 0, "host"), row, node, ()
                row += 1
            continue
        free: dict[int, int] = {}
        rows: dict[int, int] = {}
        for step in plan.steps:
            key = plan.lanes[step.lane]
            takes = "" if key.takes == "all" else f" {key.takes}"
            title = f"{key.device.dname}{takes} queue {key.ordinal}"
            at = max([free.get(step.lane, row), *(rows[index] + 1 for index in step.waits)])
            rows[step.node.index] = at
            free[step.lane] = at + 1
            yield (number, step.lane, title), at, step.node, step.waits
        row = max(free.values(), default=row)


def _label(node: Node) -> str:
    kind = "" if node.kind in ("launch", "copy") else f"{node.kind} "
    return f"{node.index}: {kind}{node.name}"


def _told(node: Node) -> str:
    line = places_in_code.words(node.line)
    return f"{_label(node)}, {line}" if line else _label(node)


def _dot(places: list[Any]) -> str:
    lines = ["digraph graph_of_commands {", "  rankdir=TB; node [shape=box, style=filled, fontname=sans];"]
    columns: dict[Any, list[Node]] = {}
    for column, _, node, _ in places:
        columns.setdefault(column, []).append(node)
    for number, (column, nodes) in enumerate(columns.items()):
        lines.append(f'  subgraph cluster_{number} {{ label="{column[2]}";')
        for node in nodes:
            label = _label(node).replace("\\", "\\\\").replace('"', '\\"')
            told = _told(node).replace("\\", "\\\\").replace('"', '\\"')
            colour = _COLOURS.get(node.kind, _OTHER)
            lines.append(f'    n{node.index} [label="{label}", tooltip="{told}", fillcolor="{colour}"];')
        if len(nodes) > 1:
            lines.append("    " + " -> ".join(f"n{node.index}" for node in nodes) + ";")
        lines.append("  }")
    for _, _, node, waits in places:
        lines += [f"  n{source} -> n{node.index} [style=dashed, constraint=true];" for source in waits]
    return "\n".join([*lines, "}", ""])


def _svg(places: list[Any]) -> str:
    columns = {column: index for index, column in enumerate(dict.fromkeys(place[0] for place in places))}
    at = {node.index: (columns[column] * _COLUMN + 20, row * _STEP + 50) for column, row, node, _ in places}
    width = max(len(columns) * _COLUMN + 20, 220)
    height = max((y for _, y in at.values()), default=40) + _HEIGHT + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
    ]
    for column, index in columns.items():
        lines.append(f'<text x="{index * _COLUMN + 20}" y="24" font-weight="bold">{escape(column[2])}</text>')
    before: dict[Any, int] = {}
    for column, _, node, waits in places:
        x, y = at[node.index]
        if column in before:
            top = at[before[column]][1] + _HEIGHT
            lines.append(_line(x + _WIDTH / 2, top, x + _WIDTH / 2, y, "#999", ""))
        before[column] = node.index
        for source in waits:
            from_x, from_y = at[source]
            right = from_x < x
            lines.append(
                _line(
                    from_x + (_WIDTH if right else 0),
                    from_y + _HEIGHT / 2,
                    x + (0 if right else _WIDTH),
                    y + _HEIGHT / 2,
                    "#c33",
                    f"{source} -> {node.index}",
                )
            )
        label = _label(node)
        shown = label if len(label) <= 24 else label[:23] + "…"
        lines.append(
            f'<g><title>{escape(_told(node))}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
            f'fill="{_COLOURS.get(node.kind, _OTHER)}" stroke="#777"/>'
            f'<text x="{x + 6}" y="{y + 16}">{escape(shown)}</text></g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, title: str) -> str:
    shown = f"<title>wait {escape(title)}</title>" if title else ""
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" marker-end="url(#tip)">'
        f"{shown}</line>"
    )
