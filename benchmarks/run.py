"""Runs rows: rounds interleave over the peers, so that what the machine does meanwhile meets all of them alike.

A round asks every entry of a row once, each in its own process; the next round starts one entry further on. Medians
over the rounds, and ratios within a round, are what is kept. What is measured is in rows.py, printing in report.py.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.load import Others
from benchmarks.peers import OURS, PEERS
from benchmarks.rows import Entry, Row
from benchmarks.worker import Answer, Worker

ANSWER_LIMIT = 60.0
PLAIN = ("%", "x", "plain")  # units of rows that measure no time: nothing to put in ratio
LEFT_OUT = "left out by --peers"
SETTLE = 0.004  # seconds between two entries, and between two looks at whether threads of the last one still spin
SETTLED = 1.0  # seconds after which nobody looks any more

Result = dict[str, Any]


class Run:
    """All workers of one run, and how long a round may take. Use as a context manager; leaving it ends every worker."""

    def __init__(self, rounds: int, round_seconds: float, quick: bool, peers: Iterable[str] | None = None) -> None:
        self.rounds, self.round_seconds, self.quick = rounds, round_seconds, quick
        self.scratch = Path(tempfile.mkdtemp(prefix="hcq-bench-"))
        chosen = set(PEERS if peers is None else peers)
        self.workers = {key: Worker(peer, self.scratch) for key, peer in PEERS.items()}
        for key, worker in self.workers.items():
            if key not in chosen:
                worker.missing = LEFT_OUT
        self.others = Others()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def versions(self) -> dict[str, dict[str, str]]:
        return {PEERS[key].label: worker.all_versions() for key, worker in self.workers.items()}

    def missing(self) -> dict[str, str]:
        return {PEERS[key].label: worker.missing for key, worker in self.workers.items() if worker.missing}

    def row(self, row: Row, tell: Callable[[str], None] = lambda _: None) -> Result:
        """Measures one row. What fails stands in the result of that entry; nothing is raised for it."""
        began = time.monotonic()
        columns = [Column(entry) for entry in row.entries]
        spinner = self._busy_process() if row.busy_core else None
        try:
            for column in columns:
                tell(f"{PEERS[column.entry.peer].label} {column.entry.label}")
                column.count = self._calibrate(row, column)
            rounds = min(self.rounds, row.rounds) if row.rounds else self.rounds
            self.others.start(self._ours())
            for k in range(rounds):
                tell(f"round {k + 1} of {rounds}")
                for column in columns[k % len(columns) :] + columns[: k % len(columns)]:
                    if not column.reason and not (column.entry.once and column.values):
                        self._settle()
                        column.take(k, self._ask(column, column.count))
            share = self.others.share(self._ours())
            if spinner is not None:  # the busy process is ours too
                share = max(0.0, share - 1.0 / (os.cpu_count() or 1))
        finally:
            if spinner is not None:
                spinner.kill()
                spinner.wait()
        return {
            "id": row.id,
            "entries": [column.result(None if row.unit in PLAIN else columns[0]) for column in columns],
            "others": round(share, 3),
            "seconds": round(time.monotonic() - began, 2),
        }

    def _settle(self) -> None:
        """Until the threads of what was measured before have fallen asleep. Those of NumPy's BLAS look for more work
        for 0.1 s after a product, and what comes next would have a core less."""
        until = time.monotonic() + SETTLED
        time.sleep(SETTLE)
        while any(worker.runs() for worker in self.workers.values()) and time.monotonic() < until:
            time.sleep(SETTLE)

    def _ask(self, column: Column, n: int) -> Answer:
        return self.workers[column.entry.peer].ask(column.entry.bench, n, column.entry.parameters, ANSWER_LIMIT)

    def _calibrate(self, row: Row, column: Column) -> int:
        """How many operations a round of this entry has. Asking also warms caches and loads what is lazy."""
        limit = column.entry.limit or row.most
        if row.count:
            count = row.quick_count if self.quick and row.quick_count else row.count
            count = min(count, column.entry.limit) if column.entry.limit else count
            if not column.entry.once and row.rounds != 1:
                column.note(self._ask(column, max(1, count // 10)))
            return count
        n = 1
        for share in (0.2, 1.0):  # the first call is slow for reasons of its own, the second tells what to expect
            answer = self._ask(column, n)
            column.note(answer)
            if column.reason:
                return 0
            n = max(1, min(limit, int(self.round_seconds * share / max(answer["value"], 1e-9))))
        return n

    def _ours(self) -> float:
        return sum(worker.cpu_seconds() for worker in self.workers.values()) + time.process_time()

    def _busy_process(self) -> subprocess.Popen[bytes]:
        path = self.scratch / "spin"
        if not path.exists():
            compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
            source = Path(__file__).parent / "raw" / "spin.c"
            subprocess.run([compiler, "-O2", "-pthread", str(source), "-o", str(path)], check=True, timeout=60)
        return subprocess.Popen([str(path)], stdin=subprocess.PIPE)


class Column:
    """The answers of one entry, by round."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.count = 0
        self.reason: dict[str, str] = {}
        self.values: dict[int, float] = {}
        self.extra: dict[str, Any] = {}

    def note(self, answer: Answer) -> None:
        self.reason = {key: answer[key] for key in ("missing", "error") if key in answer}

    def take(self, k: int, answer: Answer) -> None:
        self.note(answer)
        if not self.reason:
            self.values[k] = answer["value"]
            self.extra = {key: value for key, value in answer.items() if key != "value"}

    def result(self, first: Column | None) -> Result:
        """`ratio`: this entry's value over the first entry's, the median over the rounds that have both."""
        entry = self.entry
        result: Result = {"peer": PEERS[entry.peer].label, "label": entry.label, "n": self.count}
        if self.reason:  # a peer that fails in the middle has no figure
            return result | self.reason
        values = list(self.values.values())
        result |= {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}
        if first is not None and not first.reason and first is not self and PEERS[first.entry.peer].label in OURS:
            both = [value / first.values[k] for k, value in self.values.items() if first.values.get(k)]
            if both:
                result["ratio"] = statistics.median(both)
        if self.extra:
            result["extra"] = self.extra
        return result
