"""The table of a profile: time by kernel and by kind of copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.profiling.spans import Span

_HEADINGS = ("kernel", "device", "calls", "total ms", "mean us", "GB/s", "GFLOP/s", "share")


class TableRow(NamedTuple):
    """Sums of one kernel or kind of copy on one device. Times in seconds; gb_s and gflop_s are None where not known.

    share: of the time of all rows. Kernels of one name that are different programs have rows of their own.
    """

    kernel: str
    device: str
    kind: str
    calls: int
    total: float
    mean: float
    gb_s: float | None
    gflop_s: float | None
    share: float


class Table(tuple[TableRow, ...]):
    """Rows, the longest first; its text is a table."""

    dropped = 0

    def __str__(self) -> str:
        cells = [_HEADINGS, *(_cells(row) for row in self)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
        lines = [
            "  ".join(
                text.ljust(width) if column < 2 else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in cells
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        if self.dropped:
            lines.append(f"{self.dropped} records are missing: the store was full (limit=, HCQ_PROFILE_RECORDS)")
        return "\n".join(lines)


def make(spans: Sequence[Span], estimates: Mapping[str, tuple[float, float]], dropped: int) -> Table:
    """Sum the kernels and copies among `spans`. `estimates`: by name, (operations, bytes) of one launch; of portable
    kernels without loops of unknown length the work of an item is known besides."""
    sums: dict[tuple[str, str, str, object], list[int]] = {}
    for span in spans:
        if span.kind in ("kernel", "copy"):
            row = sums.setdefault((span.name, span.device or "", span.kind, span.program), [0, 0, 0, 0])
            row[0] += 1
            row[1] += span.end - span.start
            row[2] += span.nbytes
            row[3] += span.groups * span.items
    whole = sum(row[1] for row in sums.values())
    rows = []
    for (name, device, kind, _), (calls, total, nbytes, items) in sums.items():
        flops, moved = (each * calls for each in estimates.get(name, (0, 0)))
        if kind == "copy":
            flops, moved = 0, nbytes
        elif name not in estimates:
            flops, moved = _known(name, items)
        rows.append(
            TableRow(
                name,
                device,
                kind,
                calls,
                total / 1e9,
                total / 1e9 / calls,
                moved / total if moved else None,  # bytes a nanosecond are GB a second
                flops / total if flops else None,
                total / whole,
            )
        )
    table = Table(sorted(rows, key=lambda row: -row.total))
    table.dropped = dropped
    return table


def _known(name: str, items: int) -> tuple[float, float]:
    """Operations and bytes of so many items of a portable kernel, 0 where that is not known."""
    module = loaded("hcq.kernels.work")  # who launched one has imported it
    found = module.known(name) if module is not None else None
    return (found.flops * items, found.nbytes * items) if found is not None else (0, 0)


def _cells(row: TableRow) -> tuple[str, ...]:
    return (
        row.kernel,
        row.device,
        str(row.calls),
        f"{row.total * 1e3:.3f}",
        f"{row.mean * 1e6:.3f}",
        "-" if row.gb_s is None else f"{row.gb_s:.3g}",
        "-" if row.gflop_s is None else f"{row.gflop_s:.3g}",
        f"{row.share:.1%}",
    )
