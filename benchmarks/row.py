"""What a row of the tables is: its entries, its budget, and how figures are shown.

What does not live here: the rows (rows, operations).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Entry:
    """One column of a row: what one peer is asked. `bench` is the name in its worker."""

    peer: str
    bench: str
    label: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    limit: int = 0  # at most this many a round, where it is slower than the row's own count is meant for
    once: bool = False  # too slow for more than one round


@dataclass(frozen=True)
class Budget:
    """`most` in seconds (or plain). With `of`, the most is `most` times what that entry took in the same round."""

    text: str
    most: float
    of: str = ""


@dataclass(frozen=True)
class Row:
    """The first entry is what the budget is about; values are seconds, lower is better, unless `unit` is plain."""

    id: str
    group: str
    title: str
    # ns, us, ms: of one operation; GB/s, GFLOP/s: `size` bytes or operations over the time; %, x, MiB, plain: as is
    unit: str
    entries: tuple[Entry, ...]
    budget: Budget | None = None
    count: int = 0  # operations a round; 0: as many as fit a round's time
    quick_count: int = 0  # with --quick, where it differs
    most: int = 1_000_000
    size: int = 0
    busy_core: bool = False  # another process keeps one core busy meanwhile
    rounds: int = 0  # 0: as many as the run has
    heavy: bool = False  # left out by --quick
    note: str = ""


STATED = Budget("stated", float("inf"))
